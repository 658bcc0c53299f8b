#include "core/sim/live_stats.hpp"

#include <algorithm>

#include "core/base/nan.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/sim/kept_keys.hpp"

namespace kvscope {

namespace {

/// Of one call of which nothing is kept yet.
CostTotals one_call(Index n_q, Index n_kv, TokenRange call) {
  // positions begin + 1 .. end: what the rows see
  const double n_visible =
      static_cast<double>(call.size()) * static_cast<double>(call.begin + 1 + call.end) / 2.0;
  return {.visible = static_cast<double>(n_q) * n_visible,
          .available = static_cast<double>(n_kv * call.end),
          .n_rows = static_cast<double>(n_q * call.size()),
          .n_calls = 1.0,
          .longest = static_cast<double>(call.end)};
}

CostTotals over_phases(const std::array<CostTotals, 3>& phases) {
  CostTotals sum;
  for (const CostTotals& one : phases) sum.add(one);
  return sum;
}

}  // namespace

CostTotals CostTotals::of(const Selection& selection, Index n_q, Index n_kv, TokenRange call) {
  CostTotals totals = one_call(n_q, n_kv, call);
  for (Index kv_head = 0; kv_head < n_kv; ++kv_head) {
    const KeptKeys kept =
        count_kept_keys(selection, n_q / n_kv, kv_head, call, /*window=*/std::nullopt);
    for (const double n : kept.attended) totals.attended += n;
    totals.loaded += kept.n_union;
  }
  return totals;
}

CostTotals CostTotals::of_dense(Index n_q, Index n_kv, TokenRange call) {
  CostTotals totals = one_call(n_q, n_kv, call);
  totals.attended = totals.visible;
  totals.loaded = totals.available;
  return totals;
}

CostTotals CostTotals::of_counts(const ListCounts& counts, TokenRange call) {
  CostTotals totals = one_call(std::ssize(counts.attended), std::ssize(counts.loaded), call);
  for (const std::uint64_t n : counts.attended) totals.attended += static_cast<double>(n);
  for (const std::uint64_t n : counts.loaded) totals.loaded += static_cast<double>(n);
  return totals;
}

void CostTotals::add(const CostTotals& other) {
  attended += other.attended;
  visible += other.visible;
  loaded += other.loaded;
  available += other.available;
  n_rows += other.n_rows;
  bytes += other.bytes;
  n_calls += other.n_calls;
  longest = std::max(longest, other.longest);
}

double CostTotals::keys() const {
  return n_rows > 0.0 ? attended / n_rows : kNan;
}
double CostTotals::density() const {
  return visible > 0.0 ? attended / visible : kNan;
}
double CostTotals::bytes_per_call() const {
  return n_calls > 0.0 ? bytes / n_calls : kNan;
}

void LiveStats::add(Phase phase, CostTotals here, const AttentionShape& shape, bool is_own,
                    double score_bytes) {
  here.bytes =
      score_bytes + 2.0 * here.loaded * static_cast<double>(shape.d_head) * kBytesPerElement;
  cost[static_cast<std::size_t>(phase)].add(here);
  if (is_own) kept[static_cast<std::size_t>(phase)].add(here);
}

CostTotals LiveStats::all() const {
  return over_phases(kept);
}
CostTotals LiveStats::all_costs() const {
  return over_phases(cost);
}

}  // namespace kvscope
