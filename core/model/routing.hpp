// Which experts the tokens of one forward call went to, and with which weights.
#pragma once

#include <cstdint>

#include "core/tensor/tensor.hpp"

namespace kvscope {

/// The experts of every token of a call in one mixture-of-experts layer.
struct Routing {
  Tensor<std::int32_t>
      expert;            // [n_tok, n_picked] by falling logit, lower index first among equals
  Tensor<float> weight;  // [n_tok, n_picked] factors of the experts' outputs
};

}  // namespace kvscope
