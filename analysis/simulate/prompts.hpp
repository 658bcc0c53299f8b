// Retrieval prompts of an exact number of tokens: facts hidden in prose, a question at the end.
//
// The wording of pass keys and magic numbers is what the embedded verifier was trained to answer
// (traces/samples/README.md); the other kinds follow RULER (arXiv 2404.06654), InfiniteBench
// (2402.13718) and the stories of The Sparse Frontier (2504.17768) in that wording and need a
// larger model. The prose is the text that the simulation reads, the words are of this project.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/fields.hpp"
#include "core/model/chat/chat_template.hpp"
#include "core/model/tokenizer.hpp"

namespace kvscope {

enum class PromptKind {
  passkey,            // one pass key
  multi_key,          // several magic numbers, one is asked for
  multi_value,        // one thing with several magic numbers, all are asked for
  variable_tracking,  // a chain of assignments, all variables of one value are asked for
  common_words,       // a list of words, the most frequent ones are asked for
  niah_single_1,      // one magic number in sentences that repeat
  niah_single_2,      // one magic number in prose
  niah_single_3,      // one magic code (as a UUID) in prose
  niah_multikey_1,    // four magic numbers in prose, one is asked for
  niah_multikey_2,    // nothing but magic numbers, one is asked for
  niah_multikey_3,    // nothing but codes of codes, one is asked for
  niah_multiquery,    // four magic numbers in prose, all are asked for
  fwe,                // coded words with frequencies of Zipf, the three most frequent are asked for
  number_string,      // ten digits that repeat (InfiniteBench, Retrieve.Number)
  kv_pairs,           // a JSON object of codes, one value is asked for (Retrieve.KV)
  math_find,          // a list of numbers, the largest is asked for (Math.Find)
  code_run,           // functions that call each other, one value is asked for (Code.Run)
  story_retrieval,    // chapters of a journey: where was somebody in chapter n
  story_multihop,     // ... what was bought right before a thing
  story_filtering,    // ... in which chapters nothing was bought
  copy,               // prose that is copied, thousands of tokens long (chains.hpp)
  running_sum,        // sums that go on
  rewriting,          // lines whose words rotate
  local,              // examples of a file (local_prompts.hpp)
};

/// Kinds between commas: a kind, a name of RULER's paper (niah_multivalue, vt, cwe), or a family:
/// ruler (its eleven generated tasks), infinitebench, story, chain. Throws ConfigError naming what
/// there is, and for a kind given twice.
std::vector<PromptKind> parse_prompt_kinds(std::string_view text);

struct PromptSpec {
  PromptKind kind = PromptKind::passkey;
  Index length = 2048;  // tokens, special tokens and the first question included
  double depth = 0.5;   // of the decisive fact: 0 = at the start, 1 = right before the question
  Index n_facts = 8;    // multi_key: facts in all
  Index seed = 0;
  Index trial = 0;
  Index n_turns = 1;             // questions asked one after the other
  Index n_steps = 1024;          // chains: tokens that follow
  std::vector<TokenId> leading;  // special tokens in front (BOS)
  /// The words of the model's chat template around a question, which then ends where the answer's
  /// first words, written as the model's own, begin; null: none. Must outlive the spec.
  const ChatFrame* chat = nullptr;
};

/// A question of a later turn.
struct PromptTurn {
  std::vector<TokenId> tokens;
  std::vector<std::string> answers;
};

struct Prompt {
  std::vector<TokenId> tokens;       // [length] context and first question
  std::vector<std::string> answers;  // what should come; of chains the tokens do:
  std::vector<TokenId> continuation;
  Index n_answer_tokens = 0;     // how many tokens to generate
  Index n_context = 0;           // tokens before the first question
  std::vector<PromptTurn> more;  // turns 2, 3, ...
};

/// Builds a prompt; the same for the same spec, text and tokenizer. `filler`: tokens of prose, of
/// which a stretch that depends on seed and trial is used. Throws ConfigError if the length leaves
/// no room for the facts or the filler is too short.
Prompt make_prompt(const PromptSpec& spec, std::span<const TokenId> filler,
                   const Tokenizer& tokenizer);

/// Score of a generated text in [0, 1]. Kinds with one number as their answer: 1 if the first
/// whole number is it. Others: the share of answers that occur in it as whole words; local: 1
/// if any does.
double score_answer(PromptKind kind, const std::vector<std::string>& answers,
                    std::string_view generated);

/// What the tokenizer puts in front of a text by itself (its post-processor's template): BOS, or
/// nothing.
std::vector<TokenId> leading_special_tokens(const Tokenizer& tokenizer);

/// What of `leading` still stands in front of a chat template's words: nothing if they begin with
/// it.
std::vector<TokenId> leading_in_chat(const ChatFrame& chat, const std::vector<TokenId>& leading,
                                     const Tokenizer& tokenizer);

}  // namespace kvscope
