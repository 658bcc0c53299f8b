// Keys before their rotation, from keys after it: what the native recorder writes as k_pre_rope.
#pragma once

#include <utility>

#include "core/model/config.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// Turns keys back by the model's own rounded cosines and sines, in f64: what comes out is what the
/// model had before it rotated, to the rounding of a product in f32 (and of the cache, where that
/// is bf16). Layers without rotation keep their keys.
class PreRotary {
 public:
  explicit PreRotary(ModelConfig config) : config_(std::move(config)) {}

  /// k [kv_heads, n_tok, d_head] of positions pos_begin and on.
  Tensor<float> before(Index layer, Index pos_begin, TensorView<const float> k) const;

 private:
  ModelConfig config_;
};

}  // namespace kvscope
