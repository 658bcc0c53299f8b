#include "analysis/kinds/nucleus_sizes.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "analysis/base/statistics.hpp"
#include "core/attention/top_mass.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {

KeyCounts counts_of(std::span<const double> sizes) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  if (sizes.empty()) return {nan, nan, nan, nan};
  return {mean(sizes), quantile(sizes, 0.5), quantile(sizes, 0.95),
          *std::ranges::max_element(sizes)};
}

Index size_bin(Index size) {
  return static_cast<Index>(std::bit_width(static_cast<std::uint64_t>(size))) - 1;
}

/// Sizes of all counted rows of one head, [n_shares + 1][n_rows]; the last one is for the target.
using HeadSizes = std::vector<std::vector<double>>;

HeadSizes measure_head(const TraceSource& trace, Index layer, Index q_head, const NucleusPlan& plan,
                       const KeyTable& keys, ScoreRowLoop& loop, QueryPageMap& map,
                       ReproducibleSums& gains) {
  const std::size_t n_sizes = plan.shares.size() + 1;
  Tensor<double> sizes(Shape{static_cast<Index>(n_sizes), static_cast<Index>(plan.row_pos.size())});
  loop.run(trace, layer, q_head, plan.row_pos, keys,
           [&](Index i, std::span<double> row, TokenRange visible) {
             softmax_in_place(row);
             map.add_row(plan.row_pos[static_cast<std::size_t>(i)], row, visible);
             if (visible.size() < plan.min_visible) return;
             const TopMass top(row);
             for (std::size_t s = 0; s < n_sizes; ++s) {
               const double p = s < plan.shares.size() ? plan.shares[s] : plan.target_mass;
               sizes(static_cast<Index>(s), i) = static_cast<double>(top.keys_for(p));
             }
             for (Index k = 1; k <= top.n_weights(); ++k)
               gains.add(static_cast<std::size_t>(k - 1), top.mass(k) - top.mass(k - 1));
           });
  HeadSizes out(n_sizes);
  for (std::size_t s = 0; s < n_sizes; ++s) {
    for (const double size : sizes.view().row(static_cast<Index>(s))) {
      if (size > 0.0) out[s].push_back(size);  // 0: not counted
    }
  }
  return out;
}

}  // namespace

Index n_size_bins(Index n_tokens) {
  return size_bin(std::max<Index>(n_tokens, 1)) + 1;
}

std::optional<Index> shared_budget(std::span<const double> gains, double target_mass) {
  const double target = target_mass * std::accumulate(gains.begin(), gains.end(), 0.0);
  double sum = 0.0;
  for (std::size_t k = 0; k < gains.size(); ++k) {
    sum += gains[k];
    if (sum > 0.0 && sum >= target) return static_cast<Index>(k) + 1;
  }
  return std::nullopt;
}

LayerNucleus measure_nucleus(const TraceSource& trace, Index layer, const NucleusPlan& plan,
                             ScoreRowLoop& loop, QueryPageMap& map) {
  const TraceInfo& info = trace.info();
  const Index n_keys = plan.row_pos.back() + 1;
  const auto window = info.window_of(layer);
  std::vector<double> visible;  // of the counted rows
  for (Index pos : plan.row_pos) {
    const Index n = window ? std::min(pos + 1, *window) : pos + 1;
    if (n >= plan.min_visible) visible.push_back(static_cast<double>(n));
  }

  LayerNucleus out{.n_rows = static_cast<Index>(visible.size())};
  const auto n_bins = static_cast<std::size_t>(n_size_bins(info.n_tokens));
  const std::size_t n_shares = plan.shares.size();
  out.size_counts.assign(plan.q_heads.size() * n_shares * n_bins, 0);
  ReproducibleSums gains(static_cast<std::size_t>(n_keys));
  std::vector<double> budgets;  // of all heads
  std::optional<KeyTable> keys;
  std::optional<Index> keys_head;
  for (std::size_t h = 0; h < plan.q_heads.size(); ++h) {
    const Index kv_head = plan.q_heads[h] / info.group(layer);
    if (keys_head != kv_head) {
      keys.reset();  // before the next one is read: one table in memory
      keys.emplace(trace.read_k(layer, kv_head, {0, n_keys}).view());
      keys_head = kv_head;
    }
    const HeadSizes sizes =
        measure_head(trace, layer, plan.q_heads[h], plan, *keys, loop, map, gains);
    for (std::size_t s = 0; s < n_shares; ++s) {
      out.sizes.push_back(counts_of(sizes[s]));
      Mean share;
      for (std::size_t i = 0; i < sizes[s].size(); ++i) share.add(sizes[s][i] / visible[i]);
      out.size_share.push_back(share.value());
      auto* counts = out.size_counts.data() + (h * n_shares + s) * n_bins;
      for (const double size : sizes[s]) ++counts[size_bin(static_cast<Index>(size))];
    }
    out.head_budget.push_back(counts_of(sizes[n_shares]));
    budgets.insert(budgets.end(), sizes[n_shares].begin(), sizes[n_shares].end());
  }
  out.budget = counts_of(budgets);
  for (std::size_t k = 0; k < gains.size(); ++k) out.gains.push_back(gains.sum(k));
  return out;
}

}  // namespace kvscope
