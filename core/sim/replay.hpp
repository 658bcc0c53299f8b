// Open-loop replay: selectors answer for recorded q, k and v, and every selection is measured
// against dense attention.
//
// The dense row of a query is computed once and shared by all (selector, budget) pairs. Every layer
// sees the dense model's tensors: errors do not compound. Memory: k and v of one layer in f32 plus
// k in f64 (of all layers if a method passes context between layers; of one KV head at a time where
// a layer is large), one row of the context per worker and query head of a group; never an
// attention map.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "core/base/parallel.hpp"
#include "core/base/progress.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/sim/metrics.hpp"
#include "core/sim/replay_calls.hpp"
#include "core/trace/source.hpp"

namespace kvscope {

/// One line of a comparison.
struct ReplayPair {
  MethodSpec selector;
  std::optional<Budget> budget;  // empty for methods that take none
};

/// A measured query row of one head, as the metrics see it.
struct MeasuredRow {
  Index layer = 0;
  Index q_head = 0;
  Index pos = 0;
  TokenRange visible;
  std::span<const double> probs;                  // dense softmax over `visible`
  std::span<const std::span<const KeyPos>> kept;  // [n_pairs] attended keys, ascending
};

/// One pair's selection in one call of one layer, before it is measured.
struct SelectedCall {
  Index layer = 0;
  std::size_t call = 0;  // of the measured ones
  TokenRange tokens;
  std::size_t pair = 0;
  const Selection& selection;
  SelectCost cost;
  Index page_size = 1;
};

struct ReplayOptions {
  CallPlan calls;
  /// Measured queries of a call, evenly spaced, the last among them; empty = all.
  std::optional<Index> rows_per_chunk = 8;
  std::optional<Index> dense_layers;  // leading layers left dense; empty = the method's own default
  Index n_sink = 4;                   // positions that count as sink
  std::vector<Index> q_heads;         // measured heads, ascending; empty = all
  /// A recording of the same model over another text, for methods that learn from keys before they
  /// see a sequence; null = none.
  const TraceSource* calibration = nullptr;
  /// Metric best_mass is wanted: what the largest weights hold, as many as a list has.
  bool best_mass = false;
  /// Only what selections cost is wanted: kept, forced_share, union, FLOPs and bytes are those
  /// of a whole replay, everything that needs exact rows is NaN (mass_rows 1), and no row is
  /// shown to on_row.
  bool only_costs = false;
  /// Where the keys and values of a layer take more, as replay holds them, its KV heads are
  /// replayed one after another (replay_heads.hpp), which takes the memory of one and changes no
  /// bit.
  double most_layer_bytes = 1024.0 * 1024.0 * 1024.0;
  /// Called once per measured row and head, from several threads and in any order, for callers that
  /// want more than the metrics; not for layers that stay dense because of a window. May be empty.
  std::function<void(const MeasuredRow&)> on_row;
  /// Called with every selection, in order, in the thread of the replay; not for layers that stay
  /// dense because of a window. May be empty.
  std::function<void(const SelectedCall&)> on_selection;
};

/// One pair in one layer.
struct PairReplay {
  bool is_dense = true;  // every selection was "everything visible"
  std::array<std::vector<double>, kReplayMetrics>
      values;                     // each [n_heads, n_calls], by ReplayMetric
  std::vector<double> mass_rows;  // [n_heads, n_rows]: the rows behind the means
  AgeHistogram ages{};            // kept keys by age, over heads and measured rows

  std::vector<double>& of(ReplayMetric metric) { return values[static_cast<std::size_t>(metric)]; }
  const std::vector<double>& of(ReplayMetric metric) const {
    return values[static_cast<std::size_t>(metric)];
  }
};

struct LayerReplay {
  Index layer = 0;
  bool has_window = false;  // a sliding-window layer: left dense
  std::vector<Index> q_heads;
  std::vector<TokenRange> calls;
  std::vector<Index> row_begin;   // [n_calls + 1] first measured row of each call
  std::vector<PairReplay> pairs;  // in the order asked for
};

/// Positions within a call of n_tok queries that are measured.
std::vector<Index> measured_rows(Index n_tok, const std::optional<Index>& rows_per_chunk);

/// Replays `pairs` over `layers` (ascending). Methods that pass context between layers see all
/// recorded layers up to the last one asked for. draft: its attention rows are handed to methods
/// that need them, for a call of the tokens [t, t + gamma) those of the queries that proposed them,
/// t - 1 to t + gamma - 2 (SpecAttn, algorithm 1, lines 12 to 15); null = none. Throws ConfigError
/// for a trace without q, k, v of all heads and positions, a selector or budget that does not fit,
/// a missing draft; Interrupted on a stop. Same bits for any thread count.
std::vector<LayerReplay> replay_layers(const TraceSource& trace, const TraceSource* draft,
                                       const std::vector<Index>& layers,
                                       const std::vector<ReplayPair>& pairs,
                                       const ReplayOptions& options, ThreadPool& pool,
                                       const ProgressFn& progress = {}, std::stop_token stop = {});

}  // namespace kvscope
