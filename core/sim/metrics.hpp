// How good a selection is for one query row: attention kept, recall, output error, likeness to the
// oracle.
//
// One definition each. A is the exact softmax row over the visible keys, S the attended keys, O = A
// V. In layers with attention sinks A sums to less than 1; the mass is the share of what the keys
// get, and the sink takes part in every softmax.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/attention/selection.hpp"
#include "core/attention/top_cuts.hpp"
#include "core/base/enum_names.hpp"
#include "core/tensor/tensor.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// What is measured per query head and forward call (row metrics: mean over the call's sampled
/// rows).
enum class ReplayMetric : std::size_t {
  mass,      // sum of A over S / sum of A
  recall10,  // |S n Top_10(A)| / min(10, visible)
  recallk,   // the same with k = the nominal budget in tokens (|S| where the budget is no count)
  output_error,      // |y - O|, softmax renormalised over S
  output_error_rel,  // the same divided by |O|
  output_error_raw,  // |sum_S A v - O|, not renormalised
  jaccard,           // |S n oracle| / |S u oracle|, oracle = Top_|S|(A)
  sink_share,        // part of the kept attention that lies on the first n_sink positions
  far_share,  // part of sum of A on keys that are far: neither of the first n_sink positions nor of
              // the kNearKeys before the query
  far_kept,   // the same over S
  best_mass,  // sum of A over Top_|S|(A) / sum of A: the most that as many keys of the row
              // hold; NaN unless ReplayOptions::best_mass
  kept,       // |S|
  forced_share,  // part of S that was kept by rule, not by score
  union_keys,    // distinct keys that the call loads for this head's KV head
  churn,  // |S_t delta S_(t-1)| / |S_t| of the last rows of successive measured calls; NaN for the
          // first
  score_flops,   // the method's formula; the layer's cost divided evenly among its query heads
  attend_flops,  // 4 d_head * (keys attended by all rows of the call)
  bytes,         // read: scoring (divided evenly) + k and v of union_keys (divided among the group)
  metadata_bytes,  // held besides the cache (divided evenly)
};
inline constexpr std::size_t kReplayMetrics = EnumNames<ReplayMetric>::value.size();
inline constexpr Index kNearKeys = 64;
inline constexpr auto kReplayMetricNames = [] {
  auto names = EnumNames<ReplayMetric>::value;
  names[static_cast<std::size_t>(ReplayMetric::union_keys)] = "union";
  return names;
}();

/// Bins of the age histogram: age 0, then [2^(i-1), 2^i); the last one is open.
inline constexpr std::size_t kAgeBins = 24;
using AgeHistogram = std::array<std::int64_t, kAgeBins>;
/// Adds the ages of ascending keys <= pos, seen from pos.
void count_ages(std::span<const KeyPos> keys, Index pos, AgeHistogram& ages);

/// Row metrics of one row.
struct RowQuality {
  double mass = 1.0;
  double recall10 = 1.0;
  double recallk = 1.0;
  double output_error = 0.0;
  double output_error_rel = 0.0;
  double output_error_raw = 0.0;
  double jaccard = 1.0;
  double sink_share = 0.0;
  double far_share = 0.0;
  double far_kept = 0.0;
  double best_mass = 1.0;
};

/// What else than its keys forms the output of a row: weights of the keys, and
/// summaries (see Selection).
struct RowExtras {
  std::span<const float> log_weight;   // [keys.size()] or empty
  std::vector<double> summary_scores;  // [m] with log_count, or empty
  TensorView<const float> summary_v;   // [m, d_head]
  std::optional<double> list_share;    // stated: y = share * y_S + (1 - share) * the one summary
  bool changes_output() const {
    return !log_weight.empty() || !summary_scores.empty() || list_share.has_value();
  }
};

/// One exact row, prepared once and compared with many selections. Keep one per worker: memory is
/// reused.
class DenseRow {
 public:
  /// scores: scaled scores of the visible keys. v [>= visible.end, d_head]. ks: the sizes of lists
  /// and the nominal budgets that compare will meet; it finds Top_k of others itself, one by one.
  /// sink_logit: the head's attention sink, if it has one. with_best: compare says best_mass too.
  void prepare(std::span<const double> scores, TokenRange visible, TensorView<const float> v,
               std::span<const Index> ks, std::optional<double> sink_logit = std::nullopt,
               bool with_best = false);

  TokenRange visible() const { return visible_; }
  std::span<const double> probs() const { return probs_; }
  std::span<const double> output() const { return output_; }

  /// keys: ascending, inside visible(). k: nominal budget in tokens, 0 = number of keys. With all
  /// keys the selection is exact: mass 1, errors 0 (unless `extras` change the output). Mass and
  /// recall count keys as they are; outputs are made with weights and summaries.
  RowQuality compare(std::span<const KeyPos> keys, Index k, Index n_sink,
                     const RowExtras& extras = {});

  /// The same for several rows that see the same keys of the same values and keep the same list:
  /// values are read once. extras, out [rows.size()]. Bit by bit what compare gives for each row.
  static void compare(std::span<DenseRow* const> rows, std::span<const KeyPos> keys, Index k,
                      Index n_sink, std::span<const RowExtras> extras, std::span<RowQuality> out);

 private:
  /// What compare does once the sum of weights (mass) and of weighted values (raw_) of the
  /// list is known.
  RowQuality compare_sums(std::span<const KeyPos> keys, Index k, Index n_sink,
                          const RowExtras& extras, double mass);
  double sink_weight(std::span<const KeyPos> keys, Index n_sink) const;
  /// Of the list's keys that are near and no sinks.
  double near_weight(std::span<const KeyPos> keys, Index n_sink) const;
  double far_share(Index n_sink) const;
  void list_output(std::span<const KeyPos> keys, std::span<double> y) const;
  void add_extras(std::span<const KeyPos> keys, const RowExtras& extras, std::span<double> raw,
                  std::span<double> y) const;
  TopCut cut_of(Index k);
  /// The most attention that k keys of the row hold, of what the keys get.
  double best_mass(Index k);
  TokenRange visible_;
  TensorView<const float> v_;
  std::vector<double> scores_;
  std::vector<double> probs_;
  std::vector<double> output_;  // [d_head]
  std::vector<double> raw_;     // [d_head] of the list at hand: sum of weighted values,
  std::vector<double> y_;       // and its output
  double output_norm_ = 0.0;
  std::optional<double> sink_logit_;
  double lse_ = 0.0;
  bool with_best_ = false;
  std::vector<double> best_sums_;  // [1 + k] of the k largest weights
  double sink_prob_ = 0.0;         // what the sink takes of the row,
  double keys_prob_ = 1.0;         // and what it leaves
  std::vector<Index> ks_;          // ascending, without repeats
  TopCuts finder_;
  std::span<const TopCut> cuts_;  // of ks_
  TopCuts other_finder_;          // for sizes that are not among ks_
};

/// |a delta b| of two ascending lists.
Index symmetric_difference(std::span<const KeyPos> a, std::span<const KeyPos> b);

}  // namespace kvscope
