// By how much storing q and k in 16 bits moves the scores that are computed from them.
#pragma once

#include <span>

#include "core/base/parallel.hpp"
#include "core/model/observer.hpp"
#include "core/model/transformer.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// The largest change of a score (nat, after scale and cap) where q and k are rounded to `dtype`:
/// of all keys that the middle and the last query of the call see, in the recorded heads. Infinite
/// where a value does not fit.
double moved_scores(const AttentionEvent& event, const TraceInfo& info, DType dtype,
                    ThreadPool& pool);

/// What `record --dtype auto` chose, and why.
struct ChosenDType {
  DType dtype = DType::f32;
  double moved_f16 = 0.0;  // moved_scores of any layer
  double moved_bf16 = 0.0;
};

/// The smallest type that moves no score of any layer by more than kMostMoved; of the two with 16
/// bits the more exact one. Runs the first tokens of the prompt, at most `chunk` of them. f16 is
/// taken where no value of q, k and v comes within a factor of 16 of its largest number, since
/// later tokens may have larger ones.
constexpr double kMostMoved = 0.1;  // nat
ChosenDType choose_dtype(const Transformer& model, std::span<const TokenId> prompt,
                         const TraceInfo& info, ThreadPool& pool);

}  // namespace kvscope
