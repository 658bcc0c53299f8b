// What kinds of retrieval prompts are made of: draws, facts at depths, words, and putting them
// together with prose to an exact number of tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/simulate/prompts.hpp"
#include "core/base/rng.hpp"

namespace kvscope {

/// The things that magic numbers belong to in the embedded models' training.
std::span<const std::string_view> prompt_things();

/// Draws of one prompt, one after the other.
class PromptDraws {
 public:
  explicit PromptDraws(const PromptSpec& spec);
  /// Uniform in [0, n).
  Index below(Index n);
  /// Five digits, the first not 0.
  std::string number();
  /// Uniform in [0, 1], in steps of 0.001.
  double depth();
  /// n lower-case letters and digits.
  std::string code(Index n);
  /// n different indices below `size`, in a random order.
  std::vector<std::size_t> choose(std::size_t size, std::size_t n);
  /// A random order of the words.
  void shuffle(std::vector<std::string>& words);

 private:
  CounterRng rng_;
  std::uint64_t counter_ = 0;
};

/// A fact, and where in the filler it stands: a share of it.
struct PromptFact {
  std::string text;
  double depth = 0.0;
};

/// One question about the facts.
struct PromptQuestion {
  std::string text;
  std::vector<std::string> answers;
};

/// What a kind decides; questions are asked one after the other, the first stands in the prompt.
struct PromptContent {
  std::string head;
  std::vector<PromptFact> facts;
  std::vector<PromptQuestion> questions;
  Index n_answer_tokens = 10;
  std::vector<TokenId> own_filler;  // instead of the prose; empty: the prose
};

/// Text of a model on one line, safe to print.
std::string shown_text(std::string_view text);

/// " The magic number of the apple is 12345."
std::string magic_number(std::string_view thing, std::string_view number);
/// What the magic number is.
PromptQuestion ask_number(std::string_view thing, std::string_view number);

/// What stands in front of the facts: the head, behind the chat template's words if there are.
std::string head_text(const PromptSpec& spec, const std::string& head);

/// Items that fill a prompt as facts right before the question, in their order.
void add_items(std::vector<std::string> items, PromptContent& content);

/// One prompt while it is written: what it is to be, the prose, its draws.
struct PromptDesk {
  const PromptSpec& spec;
  std::span<const TokenId> filler;
  const Tokenizer& tokenizer;
  PromptDraws draws{spec};

  /// Tokens of a text that follows other text.
  Index count(std::string_view text) const;
  /// One of prompt_things().
  std::string_view thing();
  /// Tokens that facts may fill: the length without special tokens, head and first question.
  Index room(const PromptContent& content) const;
  /// Items one after the other as long as they fit into `room` tokens together: `make(i)` is the
  /// i-th. Every item is counted by itself, which is exact where items begin with a blank.
  std::vector<std::string> fit(Index room, const std::function<std::string(Index)>& make) const;
  /// Up to n different words of five letters and more that the prose has and prompt_things() has
  /// not, in a random order.
  std::vector<std::string> words_of_prose(std::size_t n);
};

/// Facts in the prose at their depths, the first question at the end; special tokens of the spec in
/// front. Throws ConfigError if the length leaves no room, the filler is too short or there are
/// fewer questions than turns.
Prompt assemble_prompt(PromptDesk& desk, PromptContent content);

/// RULER's and InfiniteBench's generated tasks that are more than magic numbers in prose.
PromptContent common_words_content(PromptDesk& desk);
PromptContent frequent_words_content(PromptDesk& desk);
PromptContent noise_key_content(PromptDesk& desk);
PromptContent code_key_content(PromptDesk& desk);
PromptContent only_numbers_content(PromptDesk& desk);
PromptContent only_codes_content(PromptDesk& desk);
PromptContent largest_number_content(PromptDesk& desk);
PromptContent function_chain_content(PromptDesk& desk);
/// The narrative tasks of sparse-frontier.
PromptContent story_content(PromptDesk& desk);

}  // namespace kvscope
