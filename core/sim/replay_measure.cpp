#include "core/sim/replay_measure.hpp"

#include <algorithm>
#include <numeric>

#include "core/attention/exact_rows.hpp"
#include "core/attention/visible.hpp"
#include "core/base/evenly_spaced.hpp"
#include "core/base/nan.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/sim/attended.hpp"
#include "core/sim/kept_keys.hpp"
#include "core/tensor/soft_cap_kernel.hpp"

namespace kvscope {

namespace {

/// The budget as a number of keys; 0 where it is none.
Index nominal_keys(const PairSelection& of_pair, Index n_visible) {
  if (!of_pair.budget || of_pair.budget->kind == Budget::Kind::mass) return 0;
  return of_pair.budget->tokens(n_visible, of_pair.page_size);
}

constexpr RowQuality kNotMeasured{kNan, kNan, kNan, kNan, kNan, kNan, kNan, kNan, kNan, kNan, kNan};

/// How many flags are 1 (the others 0): parts whose sum fits a byte, which the compiler adds up
/// many at a time.
Index count_ones(std::span<const std::uint8_t> flags) {
  constexpr std::size_t kPart = 240;
  Index n = 0;
  for (std::size_t first = 0; first < flags.size(); first += kPart) {
    std::uint8_t sum = 0;
    for (const std::uint8_t flag : flags.subspan(first, std::min(kPart, flags.size() - first)))
      sum = static_cast<std::uint8_t>(sum + flag);
    n += sum;
  }
  return n;
}

}  // namespace

std::vector<Index> measured_rows(Index n_tok, const std::optional<Index>& rows_per_chunk) {
  return evenly_spaced(0, n_tok, rows_per_chunk.value_or(n_tok));
}

/// What the workers of one call read, and where they write.
struct ReplayMeasure::Job {
  LayerReplay& out;
  std::size_t call_index;
  TokenRange call;
  const std::vector<PairSelection>& selections;
  TensorView<const float> q;
  const ReplayLayer& layer;
  const std::vector<KeyTable>& tables;
  std::vector<Index> rows;  // measured queries of the call
  std::vector<std::vector<KeyPos>>& previous;
  const std::vector<KeyPos>& all_positions;  // 0 to the call's end

  std::size_t n_calls() const { return out.calls.size(); }
};

ReplayMeasure::ReplayMeasure(const TraceInfo& info, const ReplayOptions& options, ThreadPool& pool)
    : info_(info),
      options_(options),
      pool_(pool),
      q_heads_(options.q_heads.empty() ? info.q_heads : options.q_heads),
      workers_(static_cast<std::size_t>(pool.n_threads())) {}

std::optional<std::size_t> ReplayMeasure::slot_of_head(Index q_head) const {
  const auto it = std::lower_bound(q_heads_.begin(), q_heads_.end(), q_head);
  if (it == q_heads_.end() || *it != q_head) return std::nullopt;
  return static_cast<std::size_t>(it - q_heads_.begin());
}

LayerReplay ReplayMeasure::make_layer(Index layer, bool has_window,
                                      const std::vector<TokenRange>& calls,
                                      std::size_t n_pairs) const {
  LayerReplay out;
  out.layer = layer;
  out.has_window = has_window;
  out.q_heads = q_heads_;
  out.calls = calls;
  out.row_begin = {0};
  for (const TokenRange& call : calls) {
    const auto n = static_cast<Index>(measured_rows(call.size(), options_.rows_per_chunk).size());
    out.row_begin.push_back(out.row_begin.back() + n);
  }
  out.pairs.resize(n_pairs);
  for (PairReplay& pair : out.pairs) {
    for (auto& values : pair.values) values.assign(q_heads_.size() * calls.size(), kNan);
    pair.mass_rows.assign(q_heads_.size() * static_cast<std::size_t>(out.row_begin.back()), 1.0);
  }
  return out;
}

/// What else than its keys forms the output of query head `head` of the row.
RowExtras ReplayMeasure::extras_of(const Selection& selection, const ListView& list,
                                   std::span<const KeyPos> keys, const RowHead& head) const {
  RowExtras extras;
  if (!list.log_weight.empty()) {
    const auto first = static_cast<std::size_t>(keys.data() - list.keys.data());
    extras.log_weight = list.log_weight.subspan(first, keys.size());
  }
  if (selection.summaries.empty()) return extras;
  const Summaries& summaries = selection.summaries;
  const Index kv_head = head.q_head / info_.group();
  extras.summary_scores = summary_scores(
      summaries, kv_head, widened(head.query, info_.score_rule().scale), info_.score_rule().cap);
  extras.summary_v =
      summaries.v.view().range(0, summaries.begin_of(kv_head), summaries.end_of(kv_head));
  if (summaries.has_stated_share())
    extras.list_share = static_cast<double>(summaries.list_share(head.q_head, head.row));
  return extras;
}

void ReplayMeasure::measure_row(const Job& job, Index kv_head, Index row_slot, Worker& worker) {
  const Index group = info_.group();
  const Index row = job.rows[static_cast<std::size_t>(row_slot)];
  const Index pos = job.call.begin + row;
  const TokenRange visible = visible_keys(pos, job.layer.window);
  const bool with_rows = !options_.only_costs;
  std::vector<std::span<const float>> queries;  // [group]
  for (Index head = kv_head * group; head < (kv_head + 1) * group; ++head)
    queries.push_back(job.q.sub(head).row(row));
  if (with_rows) {
    worker.scores.compute(widened_rows(queries, info_.score_rule().scale), group,
                          job.tables[static_cast<std::size_t>(kv_head)], visible);
  }
  std::vector<RowHead>& heads = worker.heads;  // those that are measured
  heads.clear();
  for (Index r = 0; r < group; ++r) {
    const Index q_head = kv_head * group + r;
    if (const auto slot = slot_of_head(q_head))
      heads.push_back({q_head, row, *slot, queries[static_cast<std::size_t>(r)]});
  }
  if (worker.dense.size() < heads.size()) worker.dense.resize(heads.size());

  const std::size_t n_pairs = job.selections.size();
  worker.lists.resize(n_pairs * heads.size());
  worker.keys.resize(n_pairs * heads.size());
  for (std::size_t h = 0; h < heads.size(); ++h) {
    const Index q_head = heads[h].q_head;
    const std::span<ListView> lists = std::span(worker.lists).subspan(h * n_pairs, n_pairs);
    const std::span<std::span<const KeyPos>> keys =
        std::span(worker.keys).subspan(h * n_pairs, n_pairs);
    worker.ks.clear();
    for (std::size_t p = 0; p < n_pairs; ++p) {
      const PairSelection& of_pair = job.selections[p];
      const Selection& selection = *of_pair.selection;
      lists[p] = selection.is_dense ? ListView{}
                                    : selection.list(owner_of(selection.owner, q_head, group), row);
      keys[p] = inside(
          selection.is_dense ? std::span<const KeyPos>(job.all_positions) : lists[p].keys, visible);
      worker.ks.push_back(static_cast<Index>(keys[p].size()));
      worker.ks.push_back(nominal_keys(of_pair, visible.size()));
    }
    if (!with_rows) continue;
    const std::span<double> row_scores = worker.scores.row(q_head - kv_head * group, visible);
    soft_cap(row_scores, info_.score_rule().cap);
    worker.dense[h].prepare(row_scores, visible, job.layer.v.view().sub(kv_head), worker.ks,
                            info_.sink_logit(job.layer.layer, q_head), options_.best_mass);
    if (options_.on_row)
      options_.on_row({job.layer.layer, q_head, pos, visible, worker.dense[h].probs(), keys});
  }
  for (std::size_t p = 0; p < n_pairs; ++p) {
    // heads that keep the same list are compared together
    const Selection& selection = *job.selections[p].selection;
    const bool is_shared = selection.is_dense || selection.owner != ListOwner::q_head;
    const std::size_t n_together = is_shared ? heads.size() : 1;
    for (std::size_t h = 0; h < heads.size(); h += n_together)
      measure_list(job, p, {pos, visible.size(), static_cast<std::size_t>(row_slot)}, h, n_together,
                   worker);
  }
}

/// Files what selection `p` gives heads [first, first + n) of the worker's row, which keep
/// the same list.
void ReplayMeasure::measure_list(const Job& job, std::size_t p, const RowPlace& at,
                                 std::size_t first, std::size_t n, Worker& worker) {
  const PairSelection& of_pair = job.selections[p];
  const Selection& selection = *of_pair.selection;
  const ListView& list = worker.lists[first * job.selections.size() + p];
  const std::span<const KeyPos> keys = worker.keys[first * job.selections.size() + p];
  worker.qualities.assign(n, kNotMeasured);
  if (!options_.only_costs) {
    worker.rows.clear();
    worker.extras.clear();
    for (std::size_t h = first; h < first + n; ++h) {
      worker.rows.push_back(&worker.dense[h]);
      worker.extras.push_back(extras_of(selection, list, keys, worker.heads[h]));
    }
    DenseRow::compare(worker.rows, keys, nominal_keys(of_pair, at.n_visible), options_.n_sink,
                      worker.extras, worker.qualities);
  }
  Index n_forced = 0;
  if (!selection.is_dense && !keys.empty()) {
    const auto begin = static_cast<std::size_t>(keys.data() - list.keys.data());
    n_forced = count_ones(list.is_forced.subspan(begin, keys.size()));
  }
  const auto n_kept = static_cast<double>(keys.size());
  const double forced_share = n_kept > 0.0 ? static_cast<double>(n_forced) / n_kept : 0.0;
  AgeHistogram ages{};
  count_ages(keys, at.pos, ages);
  for (std::size_t bin = 0; bin < kAgeBins; ++bin)
    worker.ages[p][bin] += static_cast<std::int64_t>(n) * ages[bin];
  const std::size_t n_rows = job.rows.size();
  for (std::size_t h = 0; h < n; ++h) {
    const RowQuality& quality = worker.qualities[h];
    const std::size_t slot = worker.heads[first + h].slot;
    const double values[kRowMetrics] = {
        quality.mass,         quality.recall10,         quality.recallk,
        quality.output_error, quality.output_error_rel, quality.output_error_raw,
        quality.jaccard,      quality.sink_share,       quality.far_share,
        quality.far_kept,     quality.best_mass,        n_kept,
        forced_share};
    for (std::size_t m = 0; m < kRowMetrics; ++m)
      rows_[((p * kRowMetrics + m) * q_heads_.size() + slot) * n_rows + at.row_slot] = values[m];
    if (at.row_slot + 1 < n_rows || options_.only_costs) continue;
    auto& before = job.previous[p * q_heads_.size() + slot];
    auto& churn = job.out.pairs[p].of(ReplayMetric::churn);
    if (job.call_index > 0 && n_kept > 0.0) {
      churn[slot * job.n_calls() + job.call_index] =
          static_cast<double>(symmetric_difference(before, keys)) / n_kept;
    }
    before.assign(keys.begin(), keys.end());
  }
}

void ReplayMeasure::measure_cost(const Job& job, std::size_t pair, Index kv_head) const {
  const PairSelection& of_pair = job.selections[pair];
  const Selection& selection = *of_pair.selection;
  const Index group = info_.group();
  const auto d_head = static_cast<double>(info_.d_head);
  const auto n_q = static_cast<double>(info_.n_q);
  const KeptKeys kept = count_kept_keys(selection, group, kv_head, job.call, job.layer.window);
  const double kv_bytes = 2.0 * kept.n_union * d_head * kBytesPerElement;
  PairReplay& out = job.out.pairs[pair];
  for (Index r = 0; r < group; ++r) {
    const std::optional<std::size_t> slot = slot_of_head(kv_head * group + r);
    if (!slot) continue;
    const std::size_t at = *slot * job.n_calls() + job.call_index;
    out.of(ReplayMetric::union_keys)[at] = kept.n_union;
    out.of(ReplayMetric::score_flops)[at] = of_pair.cost.score_flops / n_q;
    out.of(ReplayMetric::attend_flops)[at] =
        4.0 * d_head * kept.attended[static_cast<std::size_t>(r)];
    out.of(ReplayMetric::bytes)[at] =
        of_pair.cost.score_bytes / n_q + kv_bytes / static_cast<double>(group);
    out.of(ReplayMetric::metadata_bytes)[at] = of_pair.cost.metadata_bytes / n_q;
  }
}

void ReplayMeasure::measure(LayerReplay& out, std::size_t index,
                            const std::vector<PairSelection>& selections, TensorView<const float> q,
                            const ReplayLayer& layer, const std::vector<KeyTable>& tables,
                            std::vector<std::vector<KeyPos>>& previous) {
  const TokenRange call = out.calls[index];
  const std::vector<Index> measured = measured_rows(call.size(), options_.rows_per_chunk);
  const std::size_t n_pairs = selections.size();
  std::vector<KeyPos> all_positions(static_cast<std::size_t>(call.end));
  std::iota(all_positions.begin(), all_positions.end(), KeyPos{0});
  const Job job{out, index, call, selections, q, layer, tables, measured, previous, all_positions};
  const std::size_t n_heads = q_heads_.size();
  const std::size_t n_rows = job.rows.size();
  rows_.assign(n_pairs * kRowMetrics * n_heads * n_rows, kNan);
  for (Worker& worker : workers_) worker.ages.assign(n_pairs, AgeHistogram{});

  const auto n_rows_index = static_cast<Index>(n_rows);
  pool_.parallel_for(info_.n_kv * n_rows_index, [&](Index item, int worker) {
    measure_row(job, item / n_rows_index, item % n_rows_index,
                workers_[static_cast<std::size_t>(worker)]);
  });
  pool_.parallel_for(info_.n_kv * static_cast<Index>(n_pairs), [&](Index item, int) {
    measure_cost(job, static_cast<std::size_t>(item / info_.n_kv), item % info_.n_kv);
  });

  const auto first_row = static_cast<std::size_t>(out.row_begin[index]);
  const auto all_rows = static_cast<std::size_t>(out.row_begin.back());
  for (std::size_t p = 0; p < n_pairs; ++p) {
    PairReplay& pair = out.pairs[p];
    pair.is_dense = pair.is_dense && selections[p].selection->is_dense;
    for (std::size_t h = 0; h < n_heads; ++h) {
      for (std::size_t m = 0; m < kRowMetrics; ++m) {
        const double* values = rows_.data() + ((p * kRowMetrics + m) * n_heads + h) * n_rows;
        double sum = 0.0;
        for (std::size_t r = 0; r < n_rows; ++r) sum += values[r];
        pair.values[m][h * out.calls.size() + index] = sum / static_cast<double>(n_rows);
        if (m == 0 && !options_.only_costs)
          std::copy_n(values, n_rows, pair.mass_rows.data() + h * all_rows + first_row);
      }
    }
    for (const Worker& worker : workers_) {
      for (std::size_t bin = 0; bin < kAgeBins; ++bin) pair.ages[bin] += worker.ages[p][bin];
    }
  }
}

void ReplayMeasure::file_windowed(LayerReplay& out, std::size_t index, Index window) const {
  const TokenRange call = out.calls[index];
  double attended = 0.0;
  for (Index pos = call.begin; pos < call.end; ++pos)
    attended += static_cast<double>(visible_keys(pos, window).size());
  const std::vector<Index> rows = measured_rows(call.size(), options_.rows_per_chunk);
  double kept = 0.0;
  for (Index row : rows) kept += static_cast<double>(visible_keys(call.begin + row, window).size());
  const auto n_union = static_cast<double>(call.end - visible_keys(call.begin, window).begin);
  const auto d_head = static_cast<double>(info_.d_head);
  for (PairReplay& pair : out.pairs) {
    for (std::size_t h = 0; h < q_heads_.size(); ++h) {
      const std::size_t at = h * out.calls.size() + index;
      for (ReplayMetric one : {ReplayMetric::mass, ReplayMetric::recall10, ReplayMetric::recallk,
                               ReplayMetric::jaccard, ReplayMetric::best_mass}) {
        pair.of(one)[at] = 1.0;
      }
      if (!options_.best_mass) pair.of(ReplayMetric::best_mass)[at] = kNan;
      for (ReplayMetric zero : {ReplayMetric::output_error, ReplayMetric::output_error_rel,
                                ReplayMetric::output_error_raw, ReplayMetric::forced_share,
                                ReplayMetric::score_flops, ReplayMetric::metadata_bytes}) {
        pair.of(zero)[at] = 0.0;
      }
      pair.of(ReplayMetric::kept)[at] = kept / static_cast<double>(rows.size());
      pair.of(ReplayMetric::union_keys)[at] = n_union;
      pair.of(ReplayMetric::attend_flops)[at] = 4.0 * d_head * attended;
      pair.of(ReplayMetric::bytes)[at] =
          2.0 * n_union * d_head * kBytesPerElement / static_cast<double>(info_.group());
    }
  }
}

}  // namespace kvscope
