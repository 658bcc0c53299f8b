// Floating-point operations of a forward call, counted from the model's shape (a multiply-add is
// two).
#pragma once

#include "core/model/config.hpp"

namespace kvscope {

/// What one forward call must compute at least; element-wise work (norms, RoPE, softmax, SiLU) is
/// not counted.
struct FlopCount {
  double linear = 0;     // projections q, k, v, o and gate, up, down of all layers; of experts the
                         // picked ones, and the router
  double attention = 0;  // q.k and p.v over visible pairs only: causal, within each layer's window
  double logits = 0;     // output projection of the positions that get logits
  double total() const { return linear + attention + logits; }
};

/// For `n_tok` tokens at positions [pos_begin, pos_begin + n_tok), `n_logits` of which get logits.
FlopCount count_forward_flops(const ModelConfig& config, Index pos_begin, Index n_tok,
                              Index n_logits);

}  // namespace kvscope
