#include "analysis/simulate/prompts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"
#include "core/base/rng.hpp"

namespace kvscope {

namespace {

constexpr std::string_view kHead =
    " There is an important info hidden inside a lot of irrelevant text. Find it and memorize it. "
    "I will quiz you about the important information there.\n";

// The things that magic numbers belong to in the embedded models' training.
constexpr std::array<std::string_view, 68> kThings = {
    "apple",  "river",   "stone",  "candle",  "mirror", "garden",  "winter",  "summer",  "castle",
    "bridge", "forest",  "island", "market",  "silver", "copper",  "lantern", "harbor",  "meadow",
    "valley", "thunder", "shadow", "feather", "ribbon", "basket",  "anchor",  "compass", "saddle",
    "barrel", "blanket", "pillow", "kettle",  "hammer", "needle",  "button",  "pocket",  "ladder",
    "window", "carpet",  "marble", "orchard", "pepper", "ginger",  "cherry",  "walnut",  "violet",
    "orange", "purple",  "yellow", "crimson", "golden", "emerald", "falcon",  "sparrow", "rabbit",
    "badger", "otter",   "salmon", "beetle",  "spider", "turtle",  "dragon",  "wizard",  "knight",
    "baron",  "captain", "doctor", "farmer",  "miller"};

/// Draws of one prompt, one after the other.
class Draws {
 public:
  explicit Draws(const PromptSpec& spec)
      : rng_({static_cast<std::uint64_t>(spec.seed), static_cast<std::uint64_t>(spec.trial),
              static_cast<std::uint64_t>(spec.kind), static_cast<std::uint64_t>(spec.length),
              static_cast<std::uint64_t>(std::llround(spec.depth * 1e6))}) {}
  /// Uniform in [0, n).
  Index below(Index n) {
    const double x = rng_.uniform(counter_++) * static_cast<double>(n);
    return std::min(static_cast<Index>(x), n - 1);
  }
  /// Five digits, the first not 0.
  std::string number() { return fmt::format("{}", 10000 + below(90000)); }
  /// n different indices below `size`.
  std::vector<std::size_t> choose(std::size_t size, std::size_t n) {
    std::vector<std::size_t> all(size);
    for (std::size_t i = 0; i < size; ++i) all[i] = i;
    for (std::size_t i = 0; i < n; ++i) {
      std::swap(all[i], all[i + static_cast<std::size_t>(below(static_cast<Index>(size - i)))]);
    }
    all.resize(n);
    return all;
  }

 private:
  CounterRng rng_;
  std::uint64_t counter_ = 0;
};

/// A fact, and where in the filler it stands: a share of it.
struct Fact {
  std::string text;
  double depth = 0.0;
};

struct Content {
  std::string head;
  std::vector<Fact> facts;
  std::string question;
  std::vector<std::string> answers;
  Index n_answer_tokens = 10;
};

std::string magic_number(std::string_view thing, std::string_view number) {
  return fmt::format(" The magic number of the {} is {}.", thing, number);
}

double random_depth(Draws& draws) {
  return static_cast<double>(draws.below(1001)) / 1000.0;
}

Content passkey(const PromptSpec& spec, Draws& draws) {
  const std::string key = draws.number();
  return {std::string(kHead),
          {{fmt::format(" The pass key is {}. Remember it. {} is the pass key.", key, key),
            spec.depth}},
          " What is the pass key? The pass key is",
          {key}};
}

Content multi_key(const PromptSpec& spec, Draws& draws) {
  Content content;
  const auto things = draws.choose(kThings.size(), static_cast<std::size_t>(spec.n_facts));
  for (std::size_t i = 0; i < things.size(); ++i) {
    const std::string number = draws.number();
    const std::string_view thing = kThings[things[i]];
    content.facts.push_back(
        {magic_number(thing, number), i == 0 ? spec.depth : random_depth(draws)});
    if (i > 0) continue;  // the first one is asked for
    content.answers = {number};
    content.question = fmt::format(
        " What is the magic number of the {}? The magic number of the {} is", thing, thing);
  }
  return content;
}

Content multi_value(const PromptSpec& spec, Draws& draws) {
  constexpr Index kValues = 4;
  Content content;
  const std::string_view thing = kThings[draws.choose(kThings.size(), 1).front()];
  for (Index i = 0; i < kValues; ++i) {
    content.answers.push_back(draws.number());
    content.facts.push_back(
        {magic_number(thing, content.answers.back()), i == 0 ? spec.depth : random_depth(draws)});
  }
  content.question = fmt::format(
      " What are all the magic numbers of the {}? The magic numbers of the {} are", thing, thing);
  content.n_answer_tokens = 40;
  return content;
}

Content variable_tracking(const PromptSpec& spec, Draws& draws) {
  constexpr Index kChain = 4;
  Content content;
  const std::string value = draws.number();
  const auto things = draws.choose(kThings.size(), kChain);
  std::vector<double> depths = {spec.depth};
  for (Index i = 1; i < kChain; ++i) depths.push_back(random_depth(draws));
  std::sort(depths.begin(), depths.end());  // a chain reads in order
  for (std::size_t i = 0; i < things.size(); ++i) {
    const std::string_view thing = kThings[things[i]];
    content.facts.push_back({i == 0 ? magic_number(thing, value)
                                    : fmt::format(" The magic number of the {} is that of the {}.",
                                                  thing, kThings[things[i - 1]]),
                             depths[i]});
    content.answers.emplace_back(thing);
  }
  content.question = fmt::format(
      " Which things have the magic number {}? The things with the magic number {} are the", value,
      value);
  content.n_answer_tokens = 40;
  return content;
}

/// The whole prompt is a list of words, a few of them frequent; its size follows from the length.
Content common_words(const PromptSpec& spec, Draws& draws, const Tokenizer& tokenizer) {
  constexpr std::size_t kCommon = 5;
  constexpr Index kFrequency = 3;  // how much more often a common word comes
  Content content;
  content.question = " What are the most common words above? The most common words are";
  content.n_answer_tokens = 30;
  const auto order = draws.choose(kThings.size(), kThings.size());
  for (std::size_t i = 0; i < kCommon; ++i) content.answers.emplace_back(kThings[order[i]]);
  const Index room = spec.length - static_cast<Index>(tokenizer.encode(content.question).size());
  std::string list;
  Index n_used = 0;
  const Index n_tickets =
      static_cast<Index>(kThings.size() - kCommon) + static_cast<Index>(kCommon) * kFrequency;
  while (n_used < room) {
    const Index ticket = draws.below(n_tickets);
    const std::size_t at = ticket < static_cast<Index>(kCommon) * kFrequency
                               ? static_cast<std::size_t>(ticket / kFrequency)
                               : static_cast<std::size_t>(ticket) - kCommon * (kFrequency - 1);
    list += fmt::format(" {}.", kThings[order[at]]);
    n_used += 3;  // at most this many tokens short; cut below
  }
  content.facts = {{std::move(list), 0.0}};
  return content;
}

Content make_content(const PromptSpec& spec, Draws& draws, const Tokenizer& tokenizer) {
  switch (spec.kind) {
    case PromptKind::passkey:
      return passkey(spec, draws);
    case PromptKind::multi_key:
      return multi_key(spec, draws);
    case PromptKind::multi_value:
      return multi_value(spec, draws);
    case PromptKind::variable_tracking:
      return variable_tracking(spec, draws);
    case PromptKind::common_words:
      return common_words(spec, draws, tokenizer);
  }
  return {};
}

void check_spec(const PromptSpec& spec) {
  if (!(spec.depth >= 0.0 && spec.depth <= 1.0)) {
    throw ConfigError(fmt::format("prompt: expected a depth in [0, 1], found {}", spec.depth));
  }
  if (spec.n_facts < 1 || spec.n_facts > static_cast<Index>(kThings.size())) {
    throw ConfigError(
        fmt::format("prompt: expected 1 to {} facts, found {}", kThings.size(), spec.n_facts));
  }
}

}  // namespace

Prompt make_prompt(const PromptSpec& spec, std::span<const TokenId> filler,
                   const Tokenizer& tokenizer) {
  check_spec(spec);
  Draws draws(spec);
  Content content = make_content(spec, draws, tokenizer);
  std::stable_sort(content.facts.begin(), content.facts.end(),
                   [](const Fact& a, const Fact& b) { return a.depth < b.depth; });
  const std::vector<TokenId> head = tokenizer.encode(content.head);
  const std::vector<TokenId> question = tokenizer.encode(content.question);
  std::vector<std::vector<TokenId>> facts;
  Index n_fixed = static_cast<Index>(head.size() + question.size());
  for (const Fact& fact : content.facts) {
    facts.push_back(tokenizer.encode(fact.text));
    if (spec.kind == PromptKind::common_words) {
      const auto room = static_cast<std::size_t>(std::max<Index>(0, spec.length - n_fixed));
      if (facts.back().size() > room) facts.back().resize(room);
    }
    n_fixed += static_cast<Index>(facts.back().size());
  }
  const Index room = spec.length - n_fixed;
  const auto n_filler = static_cast<Index>(filler.size());
  if (room < 0) {
    throw ConfigError(
        fmt::format("prompt: {} tokens are too few for a {} prompt, expected at least {}",
                    spec.length, enum_name(spec.kind), n_fixed));
  }
  if (room > n_filler) {
    throw ConfigError(fmt::format("prompt: the text has {} tokens, a prompt of {} needs {} of them",
                                  n_filler, spec.length, room));
  }
  const Index start = draws.below(n_filler - room + 1);
  Prompt prompt;
  prompt.answers = std::move(content.answers);
  prompt.n_answer_tokens = content.n_answer_tokens;
  prompt.tokens = head;
  Index used = 0;
  const auto add_filler = [&](Index until) {
    prompt.tokens.insert(prompt.tokens.end(), filler.begin() + start + used,
                         filler.begin() + start + until);
    used = until;
  };
  for (std::size_t i = 0; i < facts.size(); ++i) {
    add_filler(std::llround(content.facts[i].depth * static_cast<double>(room)));
    prompt.tokens.insert(prompt.tokens.end(), facts[i].begin(), facts[i].end());
  }
  add_filler(room);
  prompt.tokens.insert(prompt.tokens.end(), question.begin(), question.end());
  return prompt;
}

double score_answer(PromptKind kind, const Prompt& prompt, std::string_view generated) {
  if (kind == PromptKind::passkey || kind == PromptKind::multi_key) {
    constexpr std::string_view kDigits = "0123456789";
    const std::size_t begin = generated.find_first_of(kDigits);
    if (begin == std::string_view::npos) return 0.0;
    const std::size_t end = std::min(generated.find_first_not_of(kDigits, begin), generated.size());
    return generated.substr(begin, end - begin) == prompt.answers.front() ? 1.0 : 0.0;
  }
  const auto n_found = std::count_if(
      prompt.answers.begin(), prompt.answers.end(),
      [&](const std::string& answer) { return generated.find(answer) != std::string_view::npos; });
  return static_cast<double>(n_found) / static_cast<double>(prompt.answers.size());
}

}  // namespace kvscope
