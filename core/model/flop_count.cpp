#include "core/model/flop_count.hpp"

#include <algorithm>

namespace kvscope {

namespace {

// Visible (query, key) pairs of queries at [begin, end): query p sees min(p + 1, window) keys.
double visible_pairs(Index begin, Index end, std::optional<Index> window) {
  const auto below = [](Index n) {
    return 0.5 * static_cast<double>(n) * static_cast<double>(n + 1);
  };
  if (!window) return below(end) - below(begin);
  // Queries before it see all of their past.
  const Index growing_end = std::clamp(*window, begin, end);
  const double growing = below(growing_end) - below(begin);
  return growing + static_cast<double>(end - growing_end) * static_cast<double>(*window);
}

}  // namespace

FlopCount count_forward_flops(const ModelConfig& config, Index pos_begin, Index n_tok,
                              Index n_logits) {
  const auto d_model = static_cast<double>(config.d_model);
  const auto q_width = static_cast<double>(config.n_q * config.d_head);
  const auto kv_width = static_cast<double>(config.n_kv * config.d_head);
  const double attention_weights = d_model * (2 * q_width + 2 * kv_width);
  const double dense_weights =
      (config.plan.is_gated ? 3 : 2) * d_model * static_cast<double>(config.d_ff);
  const auto n_experts = static_cast<double>(config.moe.n_experts);
  const auto picked_width = static_cast<double>(config.moe.n_picked * config.moe.d_ff);
  const double moe_weights = d_model * n_experts + 3 * d_model * picked_width;
  FlopCount flops;
  for (Index layer = 0; layer < config.n_layers; ++layer) {
    const auto at = static_cast<std::size_t>(layer);
    const bool has_experts = at < config.has_experts.size() && config.has_experts[at];
    flops.linear += 2 * (attention_weights + (has_experts ? moe_weights : dense_weights)) *
                    static_cast<double>(n_tok);
  }
  for (Index layer = 0; layer < config.n_layers; ++layer) {
    const auto window =
        config.window.empty() ? std::nullopt : config.window[static_cast<std::size_t>(layer)];
    flops.attention += 4 * q_width * visible_pairs(pos_begin, pos_begin + n_tok, window);
  }
  flops.logits = 2 * d_model * static_cast<double>(config.n_vocab) * static_cast<double>(n_logits);
  return flops;
}

}  // namespace kvscope
