#include "analysis/simulate/chains.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/simulate/prompt_kit.hpp"
#include "core/base/error.hpp"

namespace kvscope {

namespace {

/// Appends items of the chain until there are n tokens; cuts the last one.
template <class Item>
void append_items(std::vector<TokenId>& tokens, std::size_t n, const Tokenizer& tokenizer,
                  const Item& item) {
  for (Index i = 0; tokens.size() < n; ++i) {
    const std::vector<TokenId> ids = tokenizer.encode(item(i));
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }
  tokens.resize(n);
}

std::vector<TokenId> running_sum(PromptDraws& draws, std::size_t n, const Tokenizer& tokenizer) {
  const Index addends[3] = {1 + draws.below(9), 1 + draws.below(9), 1 + draws.below(9)};
  Index sum = draws.below(100);
  std::vector<TokenId> tokens = tokenizer.encode(fmt::format(
      " Add {}, {} and {} in turn, modulo 1000: {},", addends[0], addends[1], addends[2], sum));
  append_items(tokens, n, tokenizer, [&](Index i) {
    sum = (sum + addends[i % 3]) % 1000;
    return fmt::format(" {},", sum);
  });
  return tokens;
}

std::vector<TokenId> rewriting(PromptDraws& draws, std::size_t n, const Tokenizer& tokenizer) {
  constexpr std::size_t kWords = 7;
  const auto things = prompt_things();
  std::vector<std::string> line;
  for (const std::size_t at : draws.choose(things.size(), kWords)) line.emplace_back(things[at]);
  std::vector<TokenId> tokens =
      tokenizer.encode(" In every line the first word of the line before goes to its end.\n");
  append_items(tokens, n, tokenizer, [&](Index) {
    std::string text = fmt::format(" {}.\n", fmt::join(line, " "));
    std::rotate(line.begin(), line.begin() + 1, line.end());
    return text;
  });
  return tokens;
}

/// Prose, and the same prose again: a prompt holds it once and its first tenth a second time.
std::vector<TokenId> copies(PromptDraws& draws, std::size_t n, Index prompt,
                            std::span<const TokenId> text) {
  const Index length = prompt * 10 / 11;
  if (static_cast<Index>(text.size()) < length) {
    throw ConfigError("copy: the text has {} tokens, a prompt of {} needs {} of them", text.size(),
                      prompt, length);
  }
  const Index start = draws.below(static_cast<Index>(text.size()) - length + 1);
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < n; ++i)
    tokens.push_back(text[static_cast<std::size_t>(start) + i % static_cast<std::size_t>(length)]);
  return tokens;
}

}  // namespace

bool is_chain(PromptKind kind) {
  return kind == PromptKind::copy || kind == PromptKind::running_sum ||
         kind == PromptKind::rewriting;
}

Prompt make_chain(const PromptSpec& spec, std::span<const TokenId> filler,
                  const Tokenizer& tokenizer) {
  constexpr Index kLeast = 16;
  if (spec.length < kLeast || spec.n_steps < 1 || spec.n_turns > 1 || spec.chat != nullptr) {
    throw ConfigError(
        "{}: a chain goes on as it began: expected at least {} tokens of prompt, 1 step, one turn "
        "and no chat template, found {} tokens, {} steps and {} turns{}",
        enum_name(spec.kind), kLeast, spec.length, spec.n_steps, spec.n_turns,
        spec.chat != nullptr ? " in chat" : "");
  }
  PromptSpec stream = spec;  // a chain has no depth: it names the draws
  stream.depth =
      spec.depth - 0.5 + static_cast<double>(spec.kind) - static_cast<double>(PromptKind::copy);
  stream.kind = PromptKind::passkey;
  PromptDraws draws(stream);
  const Index n_own = spec.length - static_cast<Index>(spec.leading.size());
  const auto n = static_cast<std::size_t>(n_own + spec.n_steps);
  const std::vector<TokenId> tokens =
      spec.kind == PromptKind::copy          ? copies(draws, n, n_own, filler)
      : spec.kind == PromptKind::running_sum ? running_sum(draws, n, tokenizer)
                                             : rewriting(draws, n, tokenizer);
  Prompt prompt;
  prompt.tokens = spec.leading;
  prompt.tokens.insert(prompt.tokens.end(), tokens.begin(), tokens.begin() + n_own);
  prompt.continuation.assign(tokens.begin() + n_own, tokens.end());
  prompt.n_answer_tokens = spec.n_steps;
  prompt.n_context = spec.length - 1;
  return prompt;
}

double share_before_error(std::span<const TokenId> expected, std::span<const TokenId> answer) {
  const auto wrong = std::ranges::mismatch(expected, answer).in1 - expected.begin();
  return static_cast<double>(wrong) / static_cast<double>(expected.size());
}

}  // namespace kvscope
