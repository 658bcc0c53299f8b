#include "core/selectors/learned_index.hpp"

#include <fmt/format.h>

#include "core/base/json.hpp"
#include "core/selectors/index_maps.hpp"

namespace kvscope {

Learned LearnedIndex::to_file() const {
  Json explained_shares = Json::array();
  double mean = 0.0;
  for (const auto& [layer, share] : explained) {
    explained_shares.push_back(share);
    mean += share / static_cast<double>(explained.size());
  }
  Learned out = queries.learned("queries", "");
  out.values["keys"] = keys.learned("keys", "").values["keys"];
  out.values["channels"] = Json::array({rank});
  out.values["shared"] = Json::array({is_shared ? 1 : 0});
  out.values["explained"] = explained_shares;
  out.options = {{"per", is_shared ? "layer" : "kv_head"}, {"d-index", rank}};
  out.summary = fmt::format(
      "index vectors of {} channels {} in {} layers; they keep {:.3f} of the scores' variance",
      rank, is_shared ? "for all KV heads" : "per KV head", keys.layers().size(), mean);
  if (n_positions > 0) {
    out.summary += fmt::format(
        "; learned at positions 0 to {}: further on, where keys are turned as none was here, they "
        "rank badly",
        n_positions - 1);
  }
  return out;
}

LearnedIndex fit_index(const TraceSource& text, std::span<const Index> layers, Index rank,
                       bool is_shared, ThreadPool& pool) {
  const Index n_kv = text.info().n_kv;
  const Index n_parts = is_shared ? 1 : n_kv;
  std::vector<IndexMaps> parts(layers.size() * static_cast<std::size_t>(n_parts));
  pool.parallel_for(static_cast<Index>(parts.size()), [&](Index i, int) {
    const Index head = i % n_parts;
    parts[static_cast<std::size_t>(i)] =
        fit_index_maps(text, layers[static_cast<std::size_t>(i / n_parts)],
                       is_shared ? TokenRange{0, n_kv} : TokenRange{head, head + 1}, rank);
  });
  LearnedIndex out;
  out.n_positions = text.info().n_tokens;
  out.is_shared = is_shared;
  out.rank = rank;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Index layer = layers[i / static_cast<std::size_t>(n_parts)];
    out.explained[layer] += parts[i].explained / static_cast<double>(n_parts);
    for (std::size_t h = 0; h < parts[i].of_keys.size(); ++h) {
      const auto head = static_cast<Index>(h) + static_cast<Index>(i) % n_parts;
      const auto q = parts[i].of_queries[h].flat();
      const auto k = parts[i].of_keys[h].flat();
      out.queries.put(layer, head, {q.begin(), q.end()});
      out.keys.put(layer, head, {k.begin(), k.end()});
    }
  }
  return out;
}

LearnedIndex load_index(const ArtifactFile& file, const AttentionShape& shape) {
  check_shape(file.get(), shape);
  const auto one = [&](const char* name, Index low, Index high) {
    return file.indices(file.list(name, 1), 1, low, high, name).front();
  };
  LearnedIndex out;
  out.is_shared = one("shared", 0, 1) == 1;
  out.rank = one("channels", 1, shape.d_head * (out.is_shared ? shape.n_kv : 1));
  out.queries.load(file, "queries", shape, out.rank * shape.d_head);
  out.keys.load(file, "keys", shape, out.rank * shape.d_head);
  return out;
}

}  // namespace kvscope
