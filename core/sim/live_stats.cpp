#include "core/sim/live_stats.hpp"

#include <algorithm>
#include <numeric>

#include "core/base/nan.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/sim/kept_keys.hpp"

namespace kvscope {

namespace {

void add_to(std::vector<double>& sums, const std::vector<double>& more) {
  if (sums.size() < more.size()) sums.resize(more.size(), 0.0);
  for (std::size_t i = 0; i < more.size(); ++i) sums[i] += more[i];
}

double total(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

double reduction_of(const std::vector<double>& part, const std::vector<double>& whole) {
  const double all = total(whole);
  return all > 0.0 ? 1.0 - total(part) / all : 0.0;
}

}  // namespace

namespace {

/// Totals of one call of which nothing is kept yet.
KeptTotals one_call(Index n_q, Index n_kv, TokenRange call) {
  // positions begin + 1 .. end: what the rows see
  const double n_visible =
      static_cast<double>(call.size()) * static_cast<double>(call.begin + 1 + call.end) / 2.0;
  KeptTotals totals;
  totals.attended.assign(static_cast<std::size_t>(n_q), 0.0);
  totals.visible.assign(static_cast<std::size_t>(n_q), n_visible);
  totals.loaded.assign(static_cast<std::size_t>(n_kv), 0.0);
  totals.available.assign(static_cast<std::size_t>(n_kv), static_cast<double>(call.end));
  totals.n_calls = 1.0;
  return totals;
}

}  // namespace

KeptTotals KeptTotals::of(const Selection& selection, Index n_q, Index n_kv, TokenRange call) {
  KeptTotals totals = one_call(n_q, n_kv, call);
  const Index group = n_q / n_kv;
  for (Index kv_head = 0; kv_head < n_kv; ++kv_head) {
    const KeptKeys kept = count_kept_keys(selection, group, kv_head, call, /*window=*/std::nullopt);
    std::copy_n(kept.attended.begin(), group, totals.attended.begin() + kv_head * group);
    totals.loaded[static_cast<std::size_t>(kv_head)] = kept.n_union;
  }
  return totals;
}

KeptTotals KeptTotals::of_dense(Index n_q, Index n_kv, TokenRange call) {
  KeptTotals totals = one_call(n_q, n_kv, call);
  totals.attended = totals.visible;
  totals.loaded = totals.available;
  return totals;
}

KeptTotals KeptTotals::of_counts(const ListCounts& counts, TokenRange call) {
  KeptTotals totals = one_call(static_cast<Index>(counts.attended.size()),
                               static_cast<Index>(counts.loaded.size()), call);
  totals.attended.assign(counts.attended.begin(), counts.attended.end());
  totals.loaded.assign(counts.loaded.begin(), counts.loaded.end());
  return totals;
}

void KeptTotals::add(const KeptTotals& other) {
  add_to(attended, other.attended);
  add_to(visible, other.visible);
  add_to(loaded, other.loaded);
  add_to(available, other.available);
  n_calls += other.n_calls;
}

double KeptTotals::n_attended() const {
  return total(attended);
}
double KeptTotals::n_visible() const {
  return total(visible);
}
double KeptTotals::n_loaded() const {
  return total(loaded);
}
double KeptTotals::n_available() const {
  return total(available);
}

void CostTotals::add(const CostTotals& other) {
  attended += other.attended;
  visible += other.visible;
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

void LiveStats::add(Phase phase, const KeptTotals& kept_here, const AttentionShape& shape,
                    TokenRange call, bool is_own, double score_bytes) {
  CostTotals cost_here;
  cost_here.attended = kept_here.n_attended();
  cost_here.visible = kept_here.n_visible();
  cost_here.n_rows = static_cast<double>(shape.n_q * call.size());
  cost_here.bytes = score_bytes + 2.0 * kept_here.n_loaded() * static_cast<double>(shape.d_head) *
                                      kBytesPerElement;
  cost_here.n_calls = 1.0;
  cost_here.longest = static_cast<double>(call.end);
  cost[static_cast<std::size_t>(phase)].add(cost_here);
  if (!is_own) return;
  of(phase).add(kept_here);
}

double KeptTotals::reduction() const {
  return reduction_of(attended, visible);
}

CostTotals LiveStats::all_costs() const {
  CostTotals sum;
  for (const CostTotals& one : cost) sum.add(one);
  return sum;
}

KeptTotals LiveStats::all() const {
  KeptTotals sum;
  for (const KeptTotals& one : kept) sum.add(one);
  return sum;
}

}  // namespace kvscope
