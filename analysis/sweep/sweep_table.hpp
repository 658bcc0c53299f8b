// The result of a sweep: tidy rows with the same fields in every format, and the arrays behind
// them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/base/number_formats.hpp"
#include "analysis/base/table.hpp"
#include "core/base/enum_names.hpp"
#include "core/sim/metrics.hpp"

namespace kvscope {

/// What a sweep remembers of a trace.
struct SweepTraceInfo {
  std::string name;
  std::string uuid;
  std::string hash;
  std::vector<Index> layers;
  std::vector<Index> q_heads;
  std::vector<TokenRange> calls;
  bool has_sinks = false;  // shares of attention are of what keys get
};

/// Text columns, in front of the numbers. match, knob, match_note: of a sweep at equal cost
/// (analysis/sweep/match.hpp), else empty: what was to be met ("density=0.05"), what the method's
/// budget setting is ("tokens=205"), and why the cost is another one (empty where it is met).
enum class SweepText : std::size_t {
  trace,
  phase,
  selector,
  budget_kind,
  match,
  setting,
  match_note
};
inline constexpr auto kSweepTexts = [] {
  auto names = EnumNames<SweepText>::value;
  names[static_cast<std::size_t>(SweepText::setting)] = "knob";
  return names;
}();

/// Number columns. NaN = does not apply (q_head and kv_head of a layer's row, churn of a single
/// call, ...).
enum class SweepNumber : std::size_t {
  layer,
  q_head,
  kv_head,
  calls,
  rows,
  budget,
  dense,
  window,
  kept,
  union_keys,
  forced_share,
  mass_mean,
  mass_p05,
  mass_min,
  mass_low,
  mass_high,
  recall10,
  recall10_low,
  recall10_high,
  recallk,
  output_error,
  output_error_rel,
  output_error_rel_low,
  output_error_rel_high,
  output_error_raw,
  jaccard,
  churn,
  sink_share,
  far_share,
  far_mass,  // what is kept of the attention on far keys: neither sinks nor near (kNearKeys)
  score_flops,
  attend_flops,
  bytes,
  metadata_bytes,
  density,        // keys kept per query row / keys visible to it, a ratio of means
  match_reached,  // the matched cost as measured, over all layers without a sliding window
  /// Of a match alone: the most mass that as many keys hold as each row keeps; how much less the
  /// method holds; how much less that is than method `ceiling` holds at the same cost.
  best_mass,
  lost_choosing,
  lost_dividing,
  /// Of a call in this layer on SweepOptions::hardware (analysis/cost); layers' rows only.
  predicted_us,
  predicted_dense_us,  // the same of dense attention
  predicted_speedup,
};
inline constexpr auto kSweepNumbers = [] {
  auto names = EnumNames<SweepNumber>::value;
  names[static_cast<std::size_t>(SweepNumber::union_keys)] = "union";
  return names;
}();

/// One line: a query head, or all measured heads of a layer (q_head and kv_head are NaN: means
/// over the heads, but sums of FLOPs and bytes). All numbers are per forward call. dense,
/// window: 0 or 1. X_low and X_high: 95 % bootstrap interval of X (mass_mean, recall10,
/// output_error_rel) over calls.
struct SweepRow {
  std::array<std::string, kSweepTexts.size()> texts;
  std::array<double, kSweepNumbers.size()> numbers{};
  std::string& text(SweepText column) { return texts[static_cast<std::size_t>(column)]; }
  const std::string& text(SweepText column) const {
    return texts[static_cast<std::size_t>(column)];
  }
  double& number(SweepNumber column) { return numbers[static_cast<std::size_t>(column)]; }
  double number(SweepNumber column) const { return numbers[static_cast<std::size_t>(column)]; }
};

/// One layer of one pair in one trace: its rows and the unaggregated arrays.
struct SweepBlock {
  std::size_t trace = 0;
  std::size_t pair = 0;
  std::size_t layer_slot = 0;      // in SweepTraceInfo::layers
  std::vector<SweepRow> rows;      // the layer, then its heads
  std::vector<float> grid;         // [kReplayMetrics, q_heads, calls]
  std::vector<std::int64_t> ages;  // [kAgeBins] kept keys by age
};

/// The rows as a table, with the columns that a sweep's file has; `formats` [rows] says what of
/// each is not in f32. `name` is what messages call it.
Table table_of(std::span<const SweepRow* const> rows, std::string name,
               std::span<const NumberFormats> formats = {});

}  // namespace kvscope
