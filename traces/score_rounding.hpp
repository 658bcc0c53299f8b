// By how much storing q and k in 16 bits can move the scores that are computed from them.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/base/parallel.hpp"
#include "core/model/observer.hpp"
#include "core/model/transformer.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// A bound of |q.k - q'.k'| for the scores of all recorded rows, where q' and k' are q and k as
/// they are stored: scale (|q| max |k' - k| + |q' - q| max |k'|), by Cauchy and Schwarz; a cap only
/// lessens it. Calls come in order, since rows see the keys of earlier ones.
class ScoreRounding {
 public:
  ScoreRounding(const TraceInfo& info, DType dtype);

  void add(const AttentionEvent& event, ThreadPool& pool);
  /// Of rows that are rounded already: by at most half a unit in the last place of each element.
  void add(const RowsEvent& event, ThreadPool& pool);

  /// TraceInfo::moved_scores [recorded layers], of the calls so far.
  const std::vector<float>& by_layer() const { return by_layer_; }
  double most() const;
  /// The largest norm of a row: no element is larger.
  double largest_norm() const { return largest_norm_; }

 private:
  struct Norms {
    double row = 0.0;    // largest |x|
    double error = 0.0;  // largest |x' - x|
  };
  class Rounded;
  /// q, k: all heads. A copy of norms_of for each task: the norms of a row.
  template <class NormsOf>
  void add_call(Index layer, TokenRange call, TensorView<const float> q, TensorView<const float> k,
                ThreadPool& pool, const NormsOf& norms_of);

  const TraceInfo& info_;
  DType dtype_;
  std::vector<float> by_layer_;
  std::vector<Norms> keys_;  // [recorded layers][n_q], as many as there are KV heads, so far
  double largest_norm_ = 0.0;
};

/// What `record --dtype auto` chose, and why: bounds over all layers.
struct ChosenDType {
  DType dtype = DType::f32;
  double moved_f16 = 0.0;
  double moved_bf16 = 0.0;
};

/// The smallest type whose bound is at most kMostMoved in every layer; of the two with 16 bits the
/// more exact one. Runs the first tokens of the prompt, at most `chunk` of them. f16 is taken where
/// rows are shorter than a sixteenth of its largest number, since later ones may be longer.
constexpr double kMostMoved = 0.25;  // nat
ChosenDType choose_dtype(const Transformer& model, std::span<const TokenId> prompt,
                         const TraceInfo& info, ThreadPool& pool);

}  // namespace kvscope
