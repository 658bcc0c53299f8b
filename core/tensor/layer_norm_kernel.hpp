// What GPT-NeoX layers need besides the kernels of other families: norms that take the mean away,
// and GELU without a gate.
#pragma once

#include "core/tensor/tensor.hpp"

namespace kvscope {

/// y = (x - mean) / sqrt(variance + eps) * weight + bias per lane, mean and variance over the n
/// features (arXiv 1607.06450, section 3). x, y [n, lanes] (they may be the same); weight, bias
/// [n]; lanes a multiple of 16. Each lane on its own and in one order, so a token's result does not
/// depend on its neighbours.
void lane_layer_norm(const float* x, const float* weight, const float* bias, Index n, float eps,
                     float* y, Index lanes);

/// x = gelu(x), elementwise over n values, with gelu(x) = x / 2 (1 + erf(x / sqrt(2))) (arXiv
/// 1606.08415, section 2).
void lane_gelu(float* x, Index n);

}  // namespace kvscope
