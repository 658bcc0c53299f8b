// What the order of ties does in closed loop: the same model decodes twice, once with the lowest
// and once with the highest positions among equal scores, and the logits and tokens are compared.
#pragma once

#include "core/base/vocabulary.hpp"
#include "core/model/transformer.hpp"
#include "core/selectors/method_spec.hpp"

namespace kvscope {

struct TieOrderEffect {
  Index first_changed = -1;   // the first step whose logits differ in any bit; -1: none of them
  Index first_token = -1;     // the first step whose likeliest token differs; -1: none
  double logit_change = 0.0;  // largest |difference| of a logit over the steps up to that one
  Index n_steps = 0;          // decoded
};

/// What one dense prefill leaves, from which every comparison starts.
struct FilledPrompt {
  std::unique_ptr<KvStore> keys;  // of all tokens but the last
  TokenId last = 0;
};

/// Throws ConfigError for a prompt without tokens.
FilledPrompt fill_prompt(const Transformer& model, std::span<const TokenId> prompt,
                         ThreadPool& pool);

/// Decodes n_new tokens greedily after the prompt under `method` with ties=first, feeds the same
/// tokens to ties=last, and compares; decoding ends with the first differing token, after which the
/// texts are others. The wrapper coarsen with these orders is put behind `method`, with scores of
/// `type` ("bf16"). on_step may throw to stop. Throws ConfigError as MethodSpec does.
TieOrderEffect compare_tie_orders(const Transformer& model, const FilledPrompt& prompt,
                                  const MethodSpec& method, std::string_view type,
                                  const std::optional<Budget>& budget, Index n_new,
                                  ThreadPool& pool,
                                  const std::function<void(Index step)>& on_step = {});

}  // namespace kvscope
