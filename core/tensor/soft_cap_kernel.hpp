// The soft cap that some models (Gemma 2) put on attention scores, over rows of scores.
#pragma once

#include <span>

namespace kvscope {

/// x[i] = cap * tanh(x[i] / cap); cap 0 leaves them as they are. Errors are a few units in the last
/// place of cap. Vector code is chosen at run time.
void soft_cap(std::span<double> x, double cap);
void soft_cap(std::span<float> x, float cap);

}  // namespace kvscope
