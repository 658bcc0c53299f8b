#include "core/selectors/key_clusters.hpp"

#include <algorithm>
#include <iterator>

#include "core/selectors/candidates.hpp"
#include "core/selectors/k_means.hpp"
#include "core/selectors/list_builders.hpp"

namespace kvscope {

namespace {

/// Mean of the rows of x [n, d] at `keys`, to out [d]; zero without keys.
void mean_row(TensorView<const float> x, std::span<const KeyPos> keys, std::span<float> out) {
  std::vector<double> sum(out.size(), 0.0);
  for (const KeyPos pos : keys) {
    const auto row = x.row(pos);
    for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += static_cast<double>(row[c]);
  }
  const double share = keys.empty() ? 0.0 : 1.0 / static_cast<double>(keys.size());
  for (std::size_t c = 0; c < sum.size(); ++c) out[c] = static_cast<float>(share * sum[c]);
}

/// Keys less their mean, side by side.
Tensor<float> centred(TensorView<const float> k, std::span<const KeyPos> keys,
                      std::span<const float> mean) {
  Tensor<float> rows({static_cast<Index>(keys.size()), k.dim(1)});
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto from = k.row(keys[i]);
    const auto to = rows.view().row(static_cast<Index>(i));
    for (std::size_t c = 0; c < to.size(); ++c) to[c] = from[c] - mean[c];
  }
  return rows;
}

}  // namespace

KeyClusters::Segment KeyClusters::cluster(const SelectCall& call, Index kv_head, TokenRange range,
                                          const ClusterOptions& options, const CounterRng& rng) {
  const auto k = call.k.sub(kv_head);
  const auto v = call.v.sub(kv_head);
  const std::vector<KeyPos> alive = candidates(call, kv_head, range);
  Segment out;
  out.range = range;
  out.call_end = call.pos_begin + call.n_tok;
  if (alive.empty()) return out;
  std::vector<float> mean(static_cast<std::size_t>(k.dim(1)));
  mean_row(k, alive, mean);
  const Tensor<float> rows = centred(k, alive, mean);
  const auto n_alive = static_cast<Index>(alive.size());
  const Index n_clusters = (n_alive + options.keys_per_cluster - 1) / options.keys_per_cluster;
  const KMeans found = k_means(rows.view(),
                               {.n_clusters = n_clusters,
                                .n_iterations = options.n_iterations,
                                .space = KMeansSpace::spherical},
                               rng);
  std::vector<std::vector<KeyPos>> members(static_cast<std::size_t>(found.centroids.dim(0)));
  for (std::size_t i = 0; i < alive.size(); ++i)
    members[static_cast<std::size_t>(found.labels[i])].push_back(alive[i]);
  std::erase_if(members, [](const std::vector<KeyPos>& keys) { return keys.empty(); });
  const Shape shape{static_cast<Index>(members.size()), k.dim(1)};
  out.k = Tensor<float>(shape);
  out.v = Tensor<float>(shape);
  for (std::size_t i = 0; i < members.size(); ++i) {
    mean_row(k, members[i], out.k.view().row(static_cast<Index>(i)));
    mean_row(v, members[i], out.v.view().row(static_cast<Index>(i)));
    out.n_meant.push_back(static_cast<Index>(members[i].size()));
  }
  if (n_alive < range.size()) {  // hidden now, perhaps not in a later call
    std::vector<KeyPos> others;
    for (Index pos = range.begin; pos < range.end; ++pos) {
      if (!is_alive(call, kv_head, pos)) others.push_back(static_cast<KeyPos>(pos));
    }
    std::vector<KeyPos> all;
    append_range(all, 0, out.k.dim(0));
    const Tensor<float> directions = centred(out.k.view(), all, mean);
    std::vector<std::int32_t> labels(others.size());
    nearest_centroids(centred(k, others, mean).view(), directions.view(), KMeansSpace::spherical,
                      labels);
    for (std::size_t i = 0; i < others.size(); ++i)
      members[static_cast<std::size_t>(labels[i])].push_back(others[i]);
    for (auto& keys : members) std::sort(keys.begin(), keys.end());
  }
  out.members = std::move(members);
  return out;
}

void KeyClusters::extend(const SelectCall& call, Index kv_head, TokenRange middle,
                         const ClusterOptions& options, const CounterRng& rng) {
  if (segments_.empty()) begin_ = middle.begin;
  const TokenRange fresh{range().end, middle.end};
  if (fresh.size() < (segments_.empty() ? Index{1} : options.next_segment)) return;
  const Index n_segments = (fresh.size() + options.longest_segment - 1) / options.longest_segment;
  for (Index i = 0; i < n_segments; ++i) {
    const TokenRange part{fresh.begin + fresh.size() * i / n_segments,
                          fresh.begin + fresh.size() * (i + 1) / n_segments};
    segments_.push_back(cluster(call, kv_head, part, options, rng));
  }
}

void KeyClusters::truncate(Index n_keys) {
  while (!segments_.empty() && segments_.back().call_end > n_keys) segments_.pop_back();
}

Index KeyClusters::count_live(const SelectCall& call, Index kv_head, Index begin) const {
  Index n = 0;
  for (const Segment& segment : segments_) {
    for (const std::vector<KeyPos>& keys : segment.members) {
      n += std::any_of(keys.begin(), keys.end(),
                       [&](KeyPos pos) { return pos >= begin && is_alive(call, kv_head, pos); });
    }
  }
  return n;
}

LiveClusters KeyClusters::live(const SelectCall& call, Index kv_head, Index begin) const {
  LiveClusters out;
  const Shape shape{count_live(call, kv_head, begin), call.k.dim(2)};
  out.k = Tensor<float>::uninitialized(shape);
  out.v = Tensor<float>::uninitialized(shape);
  const bool takes_all = all_alive(call, kv_head);
  for (const Segment& segment : segments_) {
    for (std::size_t i = 0; i < segment.members.size(); ++i) {
      std::span<const KeyPos> seen(segment.members[i]);
      if (!takes_all || begin > segment.range.begin) {
        std::vector<KeyPos> left;
        std::copy_if(seen.begin(), seen.end(), std::back_inserter(left),
                     [&](KeyPos pos) { return pos >= begin && is_alive(call, kv_head, pos); });
        if (left.empty()) continue;
        if (left.size() < seen.size()) {
          out.cut.push_back(std::move(left));
          seen = out.cut.back();
        }
      }
      const auto to_k = out.k.view().row(out.count());
      const auto to_v = out.v.view().row(out.count());
      const bool is_whole = seen.size() == segment.members[i].size();
      if (is_whole && static_cast<Index>(seen.size()) == segment.n_meant[i]) {
        const auto row = static_cast<Index>(i);
        std::copy_n(segment.k.view().row(row).data(), to_k.size(), to_k.data());
        std::copy_n(segment.v.view().row(row).data(), to_v.size(), to_v.data());
      } else {
        mean_row(call.k.sub(kv_head), seen, to_k);
        mean_row(call.v.sub(kv_head), seen, to_v);
      }
      out.members.push_back(seen);
    }
  }
  return out;
}

}  // namespace kvscope
