// Exact attention rows of one query head: the one place that widens queries, computes them a few at
// a time against the keys that they see, and knows that an attention sink takes its part of a row.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "core/attention/score_rows.hpp"

namespace kvscope {

/// factor * the rows one after another, in f64: [rows.size(), d_head], as ScoreRows takes them.
std::vector<double> widened_rows(std::span<const std::span<const float>> rows, double factor = 1.0);

/// The queries of a head, and the keys before them.
struct RowSource {
  TensorView<const float> q;  // [n, d_head], rows of the positions from q_begin on
  Index q_begin = 0;
  const KeyTable& keys;
  ScoreRule score;              // of q.k
  std::optional<Index> window;  // sliding window, the query's own position included
  bool is_picked = false;       // q has the rows of the positions asked for alone
};

/// Gets the row's index into the positions asked for, the scores of its visible keys (may be
/// overwritten) and the range of those keys.
using RowVisitor = std::function<void(Index index, std::span<double> scores, TokenRange visible)>;

/// Visits the rows at `positions` in order, 16 at a time: memory is 16 rows of the context.
void visit_score_rows(const RowSource& source, std::span<const Index> positions, ScoreRows& scratch,
                      const RowVisitor& visit);

/// Log-sum-exp of a row whose keys alone have `keys_lse`: an attention sink is one score more.
double lse_with_sink_logit(double keys_lse, std::optional<double> sink_logit);

/// What a row's scores add up to.
struct RowSums {
  double keys_lse = 0.0;  // of the keys alone
  double lse = 0.0;       // of keys and sink: a weight is exp(score - lse)
  double breadth = 0.0;   // exp(entropy) of the weights among the keys; a flat row over n has n
};

/// scores: at least one.
RowSums row_sums(std::span<const double> scores, std::optional<double> sink_logit);

/// The key that a query attends to most.
struct LargestWeight {
  Index key = -1;                                                // -1: none counts
  double log_weight = std::numeric_limits<double>::quiet_NaN();  // score - lse
};

/// Among the keys in `counted` (a part of `visible`, perhaps empty), the first among equals. scores
/// [visible.size()]; lse: of the whole row, sink included.
LargestWeight largest_weight(std::span<const double> scores, TokenRange visible, TokenRange counted,
                             double lse);

}  // namespace kvscope
