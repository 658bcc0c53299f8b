// The mixture of experts of a call: the host picks by the router's logits, the device computes
// expert after expert over the tokens that each got. A token's sum runs over its experts by
// ascending index, as on the CPU.
#include <vector>

#include "core/cuda/backend_call.hpp"
#include "core/model/moe.hpp"

namespace kvscope::gpu {

namespace {

constexpr const char* kUse = "the activations of experts";

/// The tokens of all experts, expert after expert.
struct RoutedTokens {
  std::vector<std::int32_t> token;
  std::vector<float> weight;
  std::vector<std::size_t> begin;  // [n_experts + 1]
};

RoutedTokens by_expert(const MoeConfig& moe, const Routing& routing) {
  const auto n_experts = static_cast<std::size_t>(moe.n_experts);
  const auto for_each = [&](auto&& body) {
    for (Index t = 0; t < routing.expert.dim(0); ++t) {
      for (Index i = 0; i < moe.n_picked; ++i)
        body(static_cast<std::size_t>(routing.expert(t, i)), t, routing.weight(t, i));
    }
  };
  RoutedTokens routed;
  routed.begin.assign(n_experts + 1, 0);
  for_each([&](std::size_t expert, Index, float) { ++routed.begin[expert + 1]; });
  for (std::size_t e = 0; e < n_experts; ++e) routed.begin[e + 1] += routed.begin[e];
  std::vector<std::size_t> next(routed.begin.begin(), routed.begin.end() - 1);
  routed.token.resize(routed.begin.back());
  routed.weight.resize(routed.begin.back());
  for_each([&](std::size_t expert, Index t, float weight) {
    routed.token[next[expert]] = static_cast<std::int32_t>(t);
    routed.weight[next[expert]++] = weight;
  });
  return routed;
}

}  // namespace

Routing CudaCall::mix_experts(Index layer, const Block& x_block, Block& y_block) {
  add_now();
  const RowBlock& x = of(x_block);
  RowBlock& y = of(y_block);
  const DeviceLayer& w = model_.weights.layer(layer);
  const MoeConfig& moe = config_.moe;
  const Index d = config_.d_model;
  const Index d_ff = moe.d_ff;
  const StreamHandle stream = work_.stream;

  auto* const on_device = work_.logits.room<float>(n_tok_ * moe.n_experts, kUse);
  product(w.router, w.router_bias, x, on_device, moe.n_experts);
  Tensor<float> logits({n_tok_, moe.n_experts});
  copy_to_host(logits.data(), on_device, static_cast<std::size_t>(logits.count()) * sizeof(float),
               stream);
  work_.wait_and_check();
  Routing routing = pick_experts(moe, logits.data(), n_tok_, /*lanes=*/1);

  y.has_halves = false;

  const RoutedTokens routed = by_expert(moe, routing);
  const std::int32_t* const tokens =
      work_.tokens.upload(routed.token.data(), routed.token.size(), kUse, stream);
  const float* const weights =
      work_.list_weights.upload(routed.weight.data(), routed.weight.size(), kUse, stream);
  clear_rows(y.values, static_cast<std::int64_t>(n_tok_) * d, stream);
  auto* const rows = work_.half_rows.room<float>(n_tok_ * d, kUse);
  auto* const gate_up = work_.gate_up.room<float>(n_tok_ * 2 * d_ff, kUse);
  auto* const hidden = work_.hidden.room<float>(n_tok_ * d_ff, kUse);
  auto* const answer = work_.logits.room<float>(n_tok_ * d, kUse);
  for (std::size_t e = 0; e < w.experts.size(); ++e) {
    const std::size_t begin = routed.begin[e];
    const int n = static_cast<int>(routed.begin[e + 1] - begin);
    if (n == 0) continue;
    gather_rows(x.values, x.stride, tokens + begin, n, static_cast<int>(d), rows,
                work_.input_dtype(), stream);
    work_.multiply_rows(w.experts[e].gate_up, rows, gate_up, 2 * d_ff, n);
    if (moe.is_clamped) {
      add_bias(gate_up, 2 * d_ff, w.expert_gate_up_bias + static_cast<Index>(e) * 2 * d_ff,
               static_cast<int>(2 * d_ff), n, stream);
      activate_clamped_rows(gate_up, static_cast<float>(moe.swiglu_alpha),
                            static_cast<float>(moe.swiglu_limit), static_cast<int>(d_ff), n, hidden,
                            work_.input_dtype(), stream);
    } else {
      activate_rows(Gate::silu, gate_up, gate_up + d_ff, 2 * d_ff, static_cast<int>(d_ff), n,
                    hidden, work_.input_dtype(), stream);
    }
    work_.multiply_rows(w.experts[e].down, hidden, answer, d, n);
    if (w.expert_down_bias != nullptr)
      add_bias(answer, d, w.expert_down_bias + static_cast<Index>(e) * d, static_cast<int>(d), n,
               stream);
    scatter_rows(answer, tokens + begin, weights + begin, n, static_cast<int>(d), y.values,
                 y.stride, stream);
  }
  return routing;
}

}  // namespace kvscope::gpu
