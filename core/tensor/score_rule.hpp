// How attention scores follow from dot products: the scale, and the soft cap of models
// that have one.
#pragma once

#include <cmath>

namespace kvscope {

/// score = scale * q.k; where there is a cap, cap * tanh(scale * q.k / cap) (Gemma 2, arXiv
/// 2408.00118, section 2). A cap keeps the order of keys: only what takes a softmax of scores, or
/// adds to them, needs it.
struct ScoreRule {
  double scale = 1.0;
  double cap = 0.0;  // 0 = none
  double of(double dot) const {
    return cap > 0.0 ? cap * std::tanh(scale * dot / cap) : scale * dot;
  }
};

}  // namespace kvscope
