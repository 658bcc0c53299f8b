// Kinds of retrieval whose answer is long: chains of which every next token is known. The prompt
// holds the beginning, prose of which a copy has begun (copy), sums that go on (running_sum), or
// lines of rotated words (rewriting); thousands of tokens may be decoded behind it, none of them
// teacher-forced, so that errors pile up in the kept cache. The score is the share of the tokens
// before the first wrong one.
#pragma once

#include <span>
#include <vector>

#include "analysis/simulate/prompts.hpp"

namespace kvscope {

bool is_chain(PromptKind kind);

/// spec.length tokens of prompt, and the spec.n_steps that follow in `continuation`. The same for
/// the same spec. Throws ConfigError if the prose is too short.
Prompt make_chain(const PromptSpec& spec, std::span<const TokenId> filler,
                  const Tokenizer& tokenizer);

/// Share of `expected` before the first token that is another.
double share_before_error(std::span<const TokenId> expected, std::span<const TokenId> answer);

}  // namespace kvscope
