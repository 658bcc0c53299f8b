#include "core/selectors/cluster_lists.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/attention/score_rows.hpp"
#include "core/base/error.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/shared_scores.hpp"
#include "core/tensor/soft_cap_kernel.hpp"

namespace kvscope {

SelectorCaps ClusterSelector::cluster_caps() const {
  SelectorCaps caps;
  caps.prefill = false;
  caps.needs_values = true;
  caps.needs_all_heads = true;  // k-means starts by the head's number
  caps.dense_layers = list_options_.dense_layers;
  return caps;
}

std::vector<double> ClusterSelector::cluster_weights(const SelectCall& call, Index kv_head,
                                                     const LiveClusters& clusters,
                                                     KeyDots& dots) const {
  const Index group = call.q.dim(0) / call.k.dim(0);
  const Index n_clusters = clusters.count();
  const double share = 1.0 / static_cast<double>(group * call.n_tok);
  std::vector<double> weights(static_cast<std::size_t>(n_clusters), 0.0);
  std::vector<double> log_sizes;
  for (Index i = 0; weighs_sizes() && i < n_clusters; ++i)
    log_sizes.push_back(
        std::log(static_cast<double>(clusters.members[static_cast<std::size_t>(i)].size())));
  for (Index q_head = kv_head * group; q_head < (kv_head + 1) * group; ++q_head) {
    const std::vector<double> q =
        query_rows(call, q_head, all_rows(call), static_cast<double>(call.score_scale));
    dots.compute(q, call.n_tok, clusters.k.view(), {0, n_clusters});
    for (Index row = 0; row < call.n_tok; ++row) {
      const std::span<double> scores = dots.row(row);
      soft_cap(scores, call.score_rule().cap);
      for (std::size_t i = 0; i < log_sizes.size(); ++i) scores[i] += log_sizes[i];
      softmax_in_place(scores);
      for (std::size_t i = 0; i < scores.size(); ++i) weights[i] += share * scores[i];
    }
  }
  return weights;
}

ClusterSelector::Part ClusterSelector::make_part(const SelectCall& call, Index kv_head,
                                                 const LiveClusters& clusters, TokenRange clustered,
                                                 Choice choice) const {
  Part part;
  // ascending without sorting: a bit for each clustered position
  std::vector<std::uint64_t> is_exact(static_cast<std::size_t>((clustered.size() + 63) / 64), 0);
  for (const Index cluster : choice.exact) {
    for (const KeyPos pos : clusters.members[static_cast<std::size_t>(cluster)]) {
      const auto bit = static_cast<std::size_t>(pos - clustered.begin);
      is_exact[bit / 64] |= std::uint64_t{1} << (bit % 64);
    }
  }
  for (std::size_t word = 0; word < is_exact.size(); ++word) {
    for (std::uint64_t left = is_exact[word]; left != 0; left &= left - 1)
      part.list.scored.push_back(static_cast<KeyPos>(
          clustered.begin + static_cast<Index>(word) * 64 + std::countr_zero(left)));
  }
  const TokenRange seen = call_range(call);
  part.list.forced = candidates(
      call, kv_head, TokenRange{seen.begin, std::clamp(clustered.begin, seen.begin, seen.end)});
  const std::vector<KeyPos> latest = candidates(
      call, kv_head, TokenRange{std::clamp(clustered.end, seen.begin, seen.end), seen.end});
  part.list.forced.insert(part.list.forced.end(), latest.begin(), latest.end());
  part.estimated = std::move(choice.estimated);
  return part;
}

std::vector<Selection> ClusterSelector::do_select_budgets(SelectCall call,
                                                          std::span<const Budget> budgets) {
  const Index n_kv = call.k.dim(0);
  const TokenRange middle{std::min(list_options_.n_sink, call.pos_begin),
                          std::max(list_options_.n_sink, call.pos_begin - list_options_.n_recent)};
  std::vector<LiveClusters> live(static_cast<std::size_t>(n_kv));
  std::vector<std::vector<Part>> parts(static_cast<std::size_t>(n_kv));  // [n_kv][n_budgets]
  ScoreEngine& engine = engine_of(call);
  engine.run(n_kv, [&](Index kv_head, ScoreWorker& worker) {
    const auto at = static_cast<std::size_t>(kv_head);
    auto& clusters = engine.kept<KeyClusters>(this, call.layer, kv_head);
    const CounterRng rng(list_options_.seed, call.layer, kv_head);
    if (middle.end <= call.pos_begin)
      clusters.extend(call, kv_head, middle, list_options_.clusters, rng);
    live[at] = clusters.live(call, kv_head, call_range(call).begin);
    const std::vector<double> weights = live[at].count() > 0
                                            ? cluster_weights(call, kv_head, live[at], worker.dots)
                                            : std::vector<double>{};
    std::vector<Index> sizes;
    for (const auto members : live[at].members) sizes.push_back(static_cast<Index>(members.size()));
    for (const Budget& budget : budgets)
      parts[at].push_back(
          make_part(call, kv_head, live[at], clusters.range(), choose(budget, weights, sizes)));
  });

  std::vector<Selection> selections;
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    Selection selection(ListOwner::kv_head, call.n_tok, call.n_tok);
    Index n_summaries = 0;
    for (const auto& part : parts) n_summaries += static_cast<Index>(part[b].estimated.size());
    if (n_summaries > 0) {
      selection.summaries.begin = {0};
      selection.summaries.k = Tensor<float>({n_summaries, call.k.dim(2)});
      selection.summaries.v = Tensor<float>({n_summaries, call.k.dim(2)});
    }
    for (std::size_t kv_head = 0; kv_head < parts.size(); ++kv_head) {
      const Part& part = parts[kv_head][b];
      selection.add(part.list);
      if (n_summaries == 0) continue;
      for (const Index cluster : part.estimated) {
        const auto row = static_cast<Index>(selection.summaries.log_count.size());
        const auto from_k = live[kv_head].k.view().row(cluster);
        const auto from_v = live[kv_head].v.view().row(cluster);
        std::copy(from_k.begin(), from_k.end(), selection.summaries.k.view().row(row).begin());
        std::copy(from_v.begin(), from_v.end(), selection.summaries.v.view().row(row).begin());
        selection.summaries.log_count.push_back(std::log(
            static_cast<float>(live[kv_head].members[static_cast<std::size_t>(cluster)].size())));
      }
      selection.summaries.begin.push_back(static_cast<Index>(selection.summaries.log_count.size()));
    }
    selections.push_back(std::move(selection));
  }
  return selections;
}

SelectCost ClusterSelector::cost(const SelectCall& call, const Selection& selection) const {
  if (selection.is_dense) return {};
  const auto d = static_cast<double>(call.k.dim(2));
  double n_clusters = 0.0;  // of all KV heads
  for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head) {
    if (const auto* const clusters = engine_of(call).known<KeyClusters>(this, call.layer, kv_head))
      n_clusters +=
          static_cast<double>(clusters->count_live(call, kv_head, call_range(call).begin));
  }
  const double n_estimated =
      selection.summaries.empty() ? 0.0 : static_cast<double>(selection.summaries.begin.back());
  constexpr double kElementsPerCount = 2.0;  // a number of 4 bytes
  return products_cost(queries_per_kv_head(call), n_clusters + n_estimated, d) +
         held_cost(n_clusters * (2.0 * d + kElementsPerCount));
}

}  // namespace kvscope
