// Exact scores of query rows against the keys of one KV head, block by block: never a whole T x T
// map.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/attention/row_kernels.hpp"
#include "core/base/index.hpp"
#include "core/tensor/score_rule.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// The keys of one KV head, widened to f64 and transposed in panels of kPanelKeys, so that one load
/// brings the same channel of neighbouring keys. Costs 8 bytes per element; build once per KV head
/// and share between threads.
class KeyTable {
 public:
  /// k: [n_keys, d_head]
  explicit KeyTable(TensorView<const float> k);

  Index n_keys() const { return n_keys_; }
  Index d_head() const { return d_head_; }
  /// Panels [n_panels, d_head, kPanelKeys]; the last one is filled up with zeros.
  const double* panel(Index index) const { return panels_.data() + index * d_head_ * kPanelKeys; }

 private:
  Index n_keys_ = 0;
  Index d_head_ = 0;
  Tensor<double> panels_;
};

/// Scores of a few query rows; keep one per worker, its memory is reused.
class ScoreRows {
 public:
  /// Dot products of q [n_rows, d_head] (scale it first if scores are wanted) with the keys in
  /// `range`.
  void compute(std::span<const double> q, Index n_rows, const KeyTable& keys, TokenRange range);
  /// Scores of row r for `keys`, a part of the computed range; element 0 belongs to keys.begin.
  std::span<double> row(Index r, TokenRange keys);

 private:
  std::vector<double> scores_;
  Index first_key_ = 0;
  Index stride_ = 0;
};

/// factor * x, widened to f64.
std::vector<double> widened(std::span<const float> x, double factor = 1.0);

/// L2 norm in f64.
double norm_of(std::span<const float> x);
double norm_of(std::span<const double> x);

/// log(sum(exp(x))) of a row; -infinity if empty.
double log_sum_exp(std::span<const double> x);

/// Turns scores into probabilities in place and returns their log-sum-exp. An attention sink is a
/// further score without a key: it joins the sum, so that the probabilities sum to less than 1.
double softmax_in_place(std::span<double> x, std::optional<double> sink_logit = std::nullopt);

}  // namespace kvscope
