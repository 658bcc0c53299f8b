#include "core/selectors/learned_index.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/json.hpp"
#include "core/selectors/learned.hpp"

namespace kvscope {

Learned LearnedIndex::to_file() const {
  Json layers = Json::array();
  Json explained = Json::array();
  Json queries = Json::array();
  Json keys = Json::array();
  double mean = 0.0;
  const auto flat = [](const std::vector<Tensor<double>>& of_heads) {
    Json heads = Json::array();
    for (const Tensor<double>& map : of_heads)
      heads.push_back(std::vector<double>(map.flat().begin(), map.flat().end()));
    return heads;
  };
  for (const auto& [layer, of_layer] : maps) {
    layers.push_back(layer);
    explained.push_back(of_layer.explained);
    queries.push_back(flat(of_layer.of_queries));
    keys.push_back(flat(of_layer.of_keys));
    mean += of_layer.explained / static_cast<double>(maps.size());
  }
  Learned out;
  out.values = {{"layers", layers},
                {"channels", Json::array({rank()})},
                {"shared", Json::array({is_shared ? 1 : 0})},
                {"queries", queries},
                {"keys", keys},
                {"explained", explained}};
  out.options = {{"per", is_shared ? "layer" : "kv_head"}, {"d-index", rank()}};
  out.summary = fmt::format(
      "index vectors of {} channels {} in {} layers; they keep {:.3f} of the scores' variance",
      rank(), is_shared ? "for all KV heads" : "per KV head", maps.size(), mean);
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
  for (std::size_t i = 0; i < parts.size(); ++i) {
    IndexMaps& layer = out.maps[layers[i / static_cast<std::size_t>(n_parts)]];
    layer.explained += parts[i].explained / static_cast<double>(n_parts);
    for (Tensor<double>& map : parts[i].of_queries) layer.of_queries.push_back(std::move(map));
    for (Tensor<double>& map : parts[i].of_keys) layer.of_keys.push_back(std::move(map));
  }
  return out;
}

LearnedIndex load_index(const ArtifactFile& file, const AttentionShape& shape) {
  check_shape(file.get(), shape);
  const std::vector<Index> layers = file.layers();
  const auto one = [&](const char* name, Index low, Index high) {
    return file.indices(file.list(name, 1), 1, low, high, name).front();
  };
  LearnedIndex out;
  out.is_shared = one("shared", 0, 1) == 1;
  const Index rank = one("channels", 1, shape.d_head * (out.is_shared ? shape.n_kv : 1));
  const auto& queries = file.list("queries", layers.size());
  const auto& keys = file.list("keys", layers.size());
  const auto heads = [&](const nlohmann::ordered_json& value, const char* name) {
    std::vector<Tensor<double>> maps;
    for (Index head = 0; head < shape.n_kv; ++head) {
      const bool is_list = value.is_array() && static_cast<Index>(value.size()) == shape.n_kv;
      const std::vector<double> flat =
          file.numbers(is_list ? value[static_cast<std::size_t>(head)] : value,
                       static_cast<std::size_t>(rank * shape.d_head), name);
      Tensor<double> map(Shape{rank, shape.d_head});
      std::copy(flat.begin(), flat.end(), map.data());
      maps.push_back(std::move(map));
    }
    return maps;
  };
  for (std::size_t i = 0; i < layers.size(); ++i)
    out.maps[layers[i]] = {heads(queries[i], "queries"), heads(keys[i], "keys"), 0.0};
  return out;
}

}  // namespace kvscope
