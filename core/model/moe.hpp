// The mixture-of-experts sublayer: which experts a token goes to, and what they make of it.
//
// Tokens are gathered by expert, so that each routed expert's weights are read once per call and
// the others not at all. A token's result is the sum over its experts by ascending expert index:
// same bits whatever the other tokens of the call, the chunks and the threads.
#pragma once

#include "core/base/parallel.hpp"
#include "core/model/config.hpp"
#include "core/model/layer_weights.hpp"
#include "core/model/linear.hpp"
#include "core/model/routing.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// Picks experts from the router's logits [n_blocks, n_experts, lanes]; the softmax (see
/// MoeConfig::Weights) is in double.
Routing pick_experts(const MoeConfig& moe, const float* logits, Index n_tok, Index lanes);

/// y = sum over a token's experts of weight * expert(x). x, y [n_blocks, d_model, lanes]; y is
/// overwritten, its spare lanes become zero. Returns the routing.
Routing mix_experts(const MoeConfig& moe, const MoeWeights& weights, const float* x, float* y,
                    Index n_tok, LaneShape shape, ThreadPool& pool, Matmul matmul = Matmul::f32);

}  // namespace kvscope
