// Retrieval prompts of an exact number of tokens: facts hidden in prose, a question at the end.
//
// The wording of pass keys and magic numbers is what the embedded verifier was trained to answer
// (traces/samples/README.md); the other kinds follow RULER's tasks in that wording and need a
// larger model.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "core/base/fields.hpp"
#include "core/model/tokenizer.hpp"

namespace kvscope {

enum class PromptKind {
  passkey,            // one pass key
  multi_key,          // several magic numbers, one is asked for
  multi_value,        // one thing with several magic numbers, all are asked for
  variable_tracking,  // a chain of assignments, all variables of one value are asked for
  common_words,       // a list of words, the most frequent ones are asked for
};
template <>
struct EnumNames<PromptKind> {
  static constexpr std::array<std::string_view, 5> value = {"passkey", "multi_key", "multi_value",
                                                            "variable_tracking", "common_words"};
};

struct PromptSpec {
  PromptKind kind = PromptKind::passkey;
  Index length = 2048;  // tokens, the question included
  double depth = 0.5;   // of the decisive fact: 0 = at the start, 1 = right before the question
  Index n_facts = 8;    // multi_key: facts in all
  Index seed = 0;
  Index trial = 0;
};

struct Prompt {
  std::vector<TokenId> tokens;       // [length]
  std::vector<std::string> answers;  // what should come
  Index n_answer_tokens = 0;         // how many tokens to generate
};

/// Builds a prompt; the same for the same spec, text and tokenizer. `filler`: tokens of prose, of
/// which a stretch that depends on seed and trial is used. Throws ConfigError if the length leaves
/// no room for the facts or the filler is too short.
Prompt make_prompt(const PromptSpec& spec, std::span<const TokenId> filler,
                   const Tokenizer& tokenizer);

/// Score of a generated text in [0, 1]. passkey, multi_key: 1 if its first whole number is the
/// answer. Others: the share of answers that occur in it.
double score_answer(PromptKind kind, const Prompt& prompt, std::string_view generated);

}  // namespace kvscope
