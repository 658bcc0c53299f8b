#include "gui/model/map/attention_head.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/base/analysis.hpp"
#include "core/attention/exact_rows.hpp"
#include "core/attention/visible.hpp"
#include "core/base/error.hpp"
#include "core/base/evenly_spaced.hpp"
#include "core/base/nan.hpp"
#include "core/tensor/soft_cap_kernel.hpp"

namespace kvscope::gui {

namespace {

constexpr const char* kName = "attention map";
constexpr Index kRowsAtOnce = 16;
constexpr Index kCheckedRows = 8;
// A recorded lse is off by some 1e-6 where q and k have all their bits, by 1e-3 in 16-bit traces.
constexpr double kLseTolerance = 5e-5;

/// Largest and sum of x; four chains side by side, since one would wait for itself.
struct MaxSum {
  double max = 0.0;
  double sum = 0.0;
};
MaxSum max_and_sum(std::span<const double> x) {
  double max[4] = {0.0, 0.0, 0.0, 0.0};
  double sum[4] = {0.0, 0.0, 0.0, 0.0};
  std::size_t i = 0;
  for (; i + 4 <= x.size(); i += 4) {
    for (std::size_t j = 0; j < 4; ++j) {
      max[j] = max[j] < x[i + j] ? x[i + j] : max[j];
      sum[j] += x[i + j];
    }
  }
  for (; i < x.size(); ++i) {
    max[0] = max[0] < x[i] ? x[i] : max[0];
    sum[0] += x[i];
  }
  return {std::max(std::max(max[0], max[1]), std::max(max[2], max[3])),
          (sum[0] + sum[1]) + (sum[2] + sum[3])};
}

PooledCells nothing_seen(int level, CellRange rows, CellRange cols) {
  PooledCells out{level, rows, cols, {}, {}};
  out.max.assign(static_cast<std::size_t>(rows.size() * cols.size()),
                 std::numeric_limits<float>::quiet_NaN());
  out.mean = out.max;
  return out;
}

}  // namespace

/// What one worker adds weights up in: some rows of cells, and room for scores.
struct AttentionHead::CellSums {
  int level = 0;
  Index first_row = 0;
  CellRange cols;
  std::vector<double> max;
  std::vector<double> sum;
  ScoreRows scores;

  void reset(int at_level, CellRange rows, CellRange columns) {
    level = at_level;
    first_row = rows.begin;
    cols = columns;
    max.assign(static_cast<std::size_t>(rows.size() * cols.size()), 0.0);
    sum.assign(max.size(), 0.0);
  }
  std::size_t at(Index row, Index col) const {
    return static_cast<std::size_t>((row - first_row) * cols.size() + col - cols.begin);
  }
};

AttentionHead::AttentionHead(const MapGrid& grid, Tensor<float> q, KeyTable keys,
                             const ScoreRule& rule, std::optional<double> sink_logit)
    : grid_(grid),
      q_(std::move(q)),
      keys_(std::move(keys)),
      rule_(rule),
      sink_logit_(sink_logit),
      lse_(static_cast<std::size_t>(grid.rows.size()), kNan) {}

std::shared_ptr<const AttentionHead> AttentionHead::load(const TraceSource& trace, Index layer,
                                                         Index q_head, std::stop_token stop) {
  const TraceInfo& info = trace.info();
  if (!info.capture.qkv) {
    throw ConfigError(
        "{}: {} holds no queries and keys, from which weights are computed; record it with qkv",
        kName, trace.where());
  }
  info.layer_slot(layer);
  info.q_slot(q_head);
  const MapGrid grid{info.n_tokens, info.rows, info.window_of(layer)};
  if (grid.n_tokens == 0 || grid.rows.size() <= 0)
    throw ConfigError("{}: {} holds no queries", kName, trace.where());
  check_stop(stop, kName);
  Tensor<float> q = trace.read_q(layer, q_head, grid.rows);
  check_stop(stop, kName);
  const Tensor<float> k = trace.read_k(layer, q_head / info.group(layer), {0, grid.n_tokens});
  check_stop(stop, kName);
  std::shared_ptr<AttentionHead> head(new AttentionHead(grid, std::move(q), KeyTable(k.view()),
                                                        info.shape(layer).score_rule(),
                                                        info.sink_logit(layer, q_head)));
  if (info.capture.lse) head->take_lse(trace, layer, q_head);
  return head;
}

void AttentionHead::take_lse(const TraceSource& trace, Index layer, Index q_head) {
  const Tensor<float> recorded = trace.read_lse(layer, q_head, grid_.rows);
  ScoreRows scratch;
  const Index n = grid_.rows.size();
  for (Index at : evenly_spaced(0, n, kCheckedRows)) {
    const double exact = lse_of(grid_.rows.begin + at, scratch);
    if (!(std::abs(exact - static_cast<double>(recorded(at))) <= kLseTolerance)) return;
  }
  for (Index at = 0; at < n; ++at) {
    lse_[static_cast<std::size_t>(at)] = static_cast<double>(recorded(at));
  }
  uses_recorded_lse_ = true;
}

std::size_t AttentionHead::bytes() const {
  const auto panels = static_cast<std::size_t>((keys_.n_keys() + kPanelKeys) * keys_.d_head());
  return static_cast<std::size_t>(q_.count()) * sizeof(float) + panels * sizeof(double) +
         lse_.size() * (sizeof(double) + 1);
}

double AttentionHead::lse_of_scores(std::span<const double> scores) const {
  return lse_with_sink_logit(log_sum_exp(scores), sink_logit_);
}

void AttentionHead::compute_scores(ScoreRows& out, TokenRange queries, TokenRange keys) const {
  std::vector<std::span<const float>> rows;
  for (Index query = queries.begin; query < queries.end; ++query)
    rows.push_back(q_.view().row(query - grid_.rows.begin));
  out.compute(widened_rows(rows, rule_.scale), queries.size(), keys_, keys);
  for (Index row = 0; rule_.cap > 0.0 && row < queries.size(); ++row)
    soft_cap(out.row(row, keys), rule_.cap);
}

std::optional<double> AttentionHead::known_lse(Index query) const {
  const auto at = static_cast<std::size_t>(query - grid_.rows.begin);
  const std::lock_guard lock(mutex_);
  return std::isnan(lse_[at]) ? std::nullopt : std::optional(lse_[at]);
}

void AttentionHead::remember_lse(Index query, double lse) const {
  const auto at = static_cast<std::size_t>(query - grid_.rows.begin);
  const std::lock_guard lock(mutex_);
  lse_[at] = lse;
}

double AttentionHead::lse_of(Index query, ScoreRows& scratch) const {
  if (const auto known = known_lse(query)) return *known;
  const TokenRange visible = visible_keys(query, grid_.window);
  compute_scores(scratch, {query, query + 1}, visible);
  const double lse = lse_of_scores(scratch.row(0, visible));
  remember_lse(query, lse);
  return lse;
}

void AttentionHead::ensure_lse(TokenRange queries, ThreadPool& threads,
                               const std::stop_token& stop) const {
  if (uses_recorded_lse_) return;
  std::vector<ScoreRows> scratch(static_cast<std::size_t>(threads.n_threads()));
  const Index n_blocks = (queries.size() + kRowsAtOnce - 1) / kRowsAtOnce;
  threads.parallel_for(n_blocks, [&](Index block, int worker) {
    check_stop(stop, kName);
    const Index begin = queries.begin + block * kRowsAtOnce;
    const TokenRange rows{begin, std::min(queries.end, begin + kRowsAtOnce)};
    bool all_known = true;
    for (Index query = rows.begin; query < rows.end; ++query) {
      all_known = all_known && known_lse(query).has_value();
    }
    if (all_known) return;
    ScoreRows& scores = scratch[static_cast<std::size_t>(worker)];
    const TokenRange seen{visible_keys(rows.begin, grid_.window).begin, rows.end};
    compute_scores(scores, rows, seen);
    for (Index query = rows.begin; query < rows.end; ++query) {
      const TokenRange visible = visible_keys(query, grid_.window);
      remember_lse(query, lse_of_scores(scores.row(query - rows.begin, visible)));
    }
  });
}

void AttentionHead::add_rows(TokenRange queries, TokenRange keys, CellSums& cells) const {
  const int level = cells.level;
  for (Index begin = queries.begin; begin < queries.end; begin += kRowsAtOnce) {
    const TokenRange rows{begin, std::min(queries.end, begin + kRowsAtOnce)};
    const TokenRange seen = overlap({visible_keys(rows.begin, grid_.window).begin, rows.end}, keys);
    if (seen.size() == 0) continue;
    compute_scores(cells.scores, rows, seen);
    for (Index query = rows.begin; query < rows.end; ++query) {
      const TokenRange shown = overlap(visible_keys(query, grid_.window), keys);
      if (shown.size() == 0) continue;
      const std::span<double> scores = cells.scores.row(query - rows.begin, shown);
      auto lse = known_lse(query);
      if (!lse) {
        lse = lse_of_scores(scores);  // pool() has seen to it that these are all of the row's
        remember_lse(query, *lse);
      }
      exp_row(scores, *lse, scores);
      const std::size_t row = static_cast<std::size_t>((query >> level) - cells.first_row) *
                              static_cast<std::size_t>(cells.cols.size());
      for (Index key = shown.begin; key < shown.end;) {
        const Index col = key >> level;
        const Index end = std::min(shown.end, (col + 1) << level);
        const MaxSum part = max_and_sum(scores.subspan(static_cast<std::size_t>(key - shown.begin),
                                                       static_cast<std::size_t>(end - key)));
        const std::size_t at = row + static_cast<std::size_t>(col - cells.cols.begin);
        cells.max[at] = std::max(cells.max[at], part.max);
        cells.sum[at] += part.sum;
        key = end;
      }
    }
  }
}

PooledCells AttentionHead::pool(int level, CellRange rows, CellRange cols, ThreadPool& threads,
                                std::stop_token stop) const {
  PooledCells out = nothing_seen(level, rows, cols);
  const TokenRange keys = grid_.tokens(level, cols);
  const TokenRange queries = grid_.recorded(grid_.tokens(level, rows));
  if (queries.size() == 0 || keys.size() == 0) return out;
  const bool whole_rows =
      keys.end >= queries.end && keys.begin <= visible_keys(queries.begin, grid_.window).begin;
  if (!whole_rows) ensure_lse(queries, threads, stop);

  // a task is whole rows of cells, at least kRowsAtOnce queries: its sums have one order
  const Index rows_per_task = std::max<Index>(1, kRowsAtOnce >> level);
  const Index n_tasks = (rows.size() + rows_per_task - 1) / rows_per_task;
  std::vector<CellSums> scratch(static_cast<std::size_t>(threads.n_threads()));
  threads.parallel_for(n_tasks, [&](Index task, int worker) {
    check_stop(stop, kName);
    const Index begin = rows.begin + task * rows_per_task;
    const CellRange of_task{begin, std::min(rows.end, begin + rows_per_task)};
    const TokenRange task_queries = grid_.recorded(grid_.tokens(level, of_task));
    if (task_queries.size() == 0) return;
    CellSums& own = scratch[static_cast<std::size_t>(worker)];
    own.reset(level, of_task, cols);
    add_rows(task_queries, keys, own);
    for (Index row = of_task.begin; row < of_task.end; ++row) {
      const TokenRange of_row = grid_.tokens(level, {row, row + 1});
      for (Index col = cols.begin; col < cols.end; ++col) {
        const Index pairs = grid_.visible_pairs(of_row, grid_.tokens(level, {col, col + 1}));
        if (pairs == 0) continue;
        const std::size_t from = own.at(row, col);
        const std::size_t to = out.at(row, col);
        out.max[to] = static_cast<float>(own.max[from]);
        out.mean[to] = static_cast<float>(own.sum[from] / static_cast<double>(pairs));
      }
    }
  });
  return out;
}

PooledCells AttentionHead::sample(int level, CellRange rows, Index group, ThreadPool& threads,
                                  std::stop_token stop) const {
  const CellRange cols{0, grid_.cells(level)};
  PooledCells out = nothing_seen(level, rows, cols);
  const Index n_groups = (rows.size() + group - 1) / group;
  std::vector<CellSums> scratch(static_cast<std::size_t>(threads.n_threads()));
  threads.parallel_for(n_groups, [&](Index g, int worker) {
    check_stop(stop, kName);
    const Index begin = rows.begin + g * group;
    const CellRange of_group{begin, std::min(rows.end, begin + group)};
    const TokenRange queries = grid_.recorded(grid_.tokens(level, of_group));
    if (queries.size() == 0) return;
    const Index query = queries.end - 1;
    const Index row_of_query = query >> level;
    CellSums& own = scratch[static_cast<std::size_t>(worker)];
    own.reset(level, {row_of_query, row_of_query + 1}, cols);
    add_rows({query, query + 1}, {0, grid_.n_tokens}, own);
    const TokenRange visible = visible_keys(query, grid_.window);
    for (Index row = of_group.begin; row < of_group.end; ++row) {
      const TokenRange of_row = grid_.tokens(level, {row, row + 1});
      for (Index col = cols.begin; col < cols.end; ++col) {
        if (grid_.visible_pairs(of_row, grid_.tokens(level, {col, col + 1})) == 0) continue;
        const Index nearest = std::clamp(col, visible.begin >> level, (visible.end - 1) >> level);
        const Index keys = overlap(visible, grid_.tokens(level, {nearest, nearest + 1})).size();
        const std::size_t from = own.at(row_of_query, nearest);
        const std::size_t to = out.at(row, col);
        out.max[to] = static_cast<float>(own.max[from]);
        out.mean[to] = static_cast<float>(own.sum[from] / static_cast<double>(keys));
      }
    }
  });
  return out;
}

std::optional<double> AttentionHead::weight(Index query, Index key) const {
  if (query < 0 || key < 0 || key >= grid_.n_tokens || !grid_.sees(query, key)) return std::nullopt;
  ScoreRows scratch;
  const double lse = lse_of(query, scratch);
  compute_scores(scratch, {query, query + 1}, {key, key + 1});
  std::vector<double> score(scratch.row(0, {key, key + 1}).begin(),
                            scratch.row(0, {key, key + 1}).end());
  exp_row(score, lse, score);
  return score[0];
}

SinkShare sink_share_of(const AttentionHead& head, Index n_first) {
  constexpr Index kMostRows = 64;
  const Index first = 8 * n_first;
  const Index step = std::max<Index>(1, (head.grid().n_tokens - first) / kMostRows);
  double sum = 0.0;
  Index n = 0;
  for (Index query = first; query < head.grid().n_tokens; query += step) {
    double share = 0.0;
    for (Index key = 0; key < n_first; ++key) share += head.weight(query, key).value_or(0.0);
    if (!head.grid().sees(query, query)) continue;
    sum += share;
    ++n;
  }
  return {n == 0 ? 0.0 : sum / static_cast<double>(n)};
}

}  // namespace kvscope::gui
