// The gate of GeGLU layers: GELU by its tanh form, times the other branch.
#pragma once

#include "core/tensor/tensor.hpp"

namespace kvscope {

/// gate = gelu(gate) * up, elementwise over n values (a multiple of 16), with gelu(x) = x / 2 (1 +
/// tanh(sqrt(2 / pi) (x + 0.044715 x^3))) (arXiv 1606.08415, section 2). Each value on its own, so
/// a token's result does not depend on its neighbours.
void lane_gelu_gate(float* gate, const float* up, Index n);

}  // namespace kvscope
