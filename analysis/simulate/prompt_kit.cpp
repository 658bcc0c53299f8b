#include "analysis/simulate/prompt_kit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/base/error.hpp"
#include "core/base/escape.hpp"

namespace kvscope {

namespace {

constexpr std::array<std::string_view, 68> kThings = {
    "apple",  "river",   "stone",  "candle",  "mirror", "garden",  "winter",  "summer",  "castle",
    "bridge", "forest",  "island", "market",  "silver", "copper",  "lantern", "harbor",  "meadow",
    "valley", "thunder", "shadow", "feather", "ribbon", "basket",  "anchor",  "compass", "saddle",
    "barrel", "blanket", "pillow", "kettle",  "hammer", "needle",  "button",  "pocket",  "ladder",
    "window", "carpet",  "marble", "orchard", "pepper", "ginger",  "cherry",  "walnut",  "violet",
    "orange", "purple",  "yellow", "crimson", "golden", "emerald", "falcon",  "sparrow", "rabbit",
    "badger", "otter",   "salmon", "beetle",  "spider", "turtle",  "dragon",  "wizard",  "knight",
    "baron",  "captain", "doctor", "farmer",  "miller"};

/// The lower-case words of five letters and more in a text.
std::set<std::string> long_words(std::string_view text) {
  std::set<std::string> words;
  std::string word;
  bool is_plain = true;  // nothing but small letters so far
  const auto end_word = [&] {
    if (is_plain && word.size() >= 5) words.insert(word);
    word.clear();
    is_plain = true;
  };
  for (const char c : text) {
    if (c >= 'a' && c <= 'z') {
      word += c;
    } else if (c == ' ' || c == '\n' || c == ',' || c == '.' || c == ';') {
      end_word();
    } else {
      is_plain = false;
    }
  }
  return words;
}

/// A question as it is asked. In chat its last words ("The pass key is") begin the answer: they
/// stand behind the template's.
std::string question_text(const PromptSpec& spec, const std::string& question) {
  if (spec.chat == nullptr) return question;
  const std::size_t end = question.rfind("? ");  // "What is the pass key? The pass key is"
  if (end == std::string::npos) return question + spec.chat->after;
  return question.substr(0, end + 1) + spec.chat->after + question.substr(end + 2);
}

/// The same for a question behind an answer.
std::string next_question_text(const PromptSpec& spec, const std::string& question) {
  if (spec.chat == nullptr) return question;
  return spec.chat->between +
         question_text(spec,
                       question.substr(std::min(question.find_first_not_of(' '), question.size())));
}

}  // namespace

std::span<const std::string_view> prompt_things() {
  return kThings;
}

PromptDraws::PromptDraws(const PromptSpec& spec)
    : rng_({static_cast<std::uint64_t>(spec.seed), static_cast<std::uint64_t>(spec.trial),
            static_cast<std::uint64_t>(spec.kind), static_cast<std::uint64_t>(spec.length),
            static_cast<std::uint64_t>(std::llround(spec.depth * 1e6))}) {}

Index PromptDraws::below(Index n) {
  const double x = rng_.uniform(counter_++) * static_cast<double>(n);
  return std::min(static_cast<Index>(x), n - 1);
}

std::string PromptDraws::number() {
  return fmt::format("{}", 10000 + below(90000));
}

double PromptDraws::depth() {
  return static_cast<double>(below(1001)) / 1000.0;
}

std::string PromptDraws::code(Index n) {
  constexpr std::string_view kSigns = "abcdef0123456789";
  std::string text;
  for (Index i = 0; i < n; ++i)
    text += kSigns[static_cast<std::size_t>(below(static_cast<Index>(kSigns.size())))];
  return text;
}

std::vector<std::size_t> PromptDraws::choose(std::size_t size, std::size_t n) {
  std::vector<std::size_t> all(size);
  for (std::size_t i = 0; i < size; ++i) all[i] = i;
  for (std::size_t i = 0; i < n; ++i) {
    std::swap(all[i], all[i + static_cast<std::size_t>(below(static_cast<Index>(size - i)))]);
  }
  all.resize(n);
  return all;
}

void PromptDraws::shuffle(std::vector<std::string>& words) {
  std::vector<std::string> mixed;
  for (const std::size_t at : choose(words.size(), words.size()))
    mixed.push_back(std::move(words[at]));
  words = std::move(mixed);
}

std::string shown_text(std::string_view text) {
  std::string line(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  return clean_text(line);
}

std::string magic_number(std::string_view thing, std::string_view number) {
  return fmt::format(" The magic number of the {} is {}.", thing, number);
}

PromptQuestion ask_number(std::string_view thing, std::string_view number) {
  return {fmt::format(" What is the magic number of the {}? The magic number of the {} is", thing,
                      thing),
          {std::string(number)}};
}

Index PromptDesk::count(std::string_view text) const {
  return static_cast<Index>(tokenizer.encode(text).size());
}

std::string_view PromptDesk::thing() {
  return kThings[draws.choose(kThings.size(), 1).front()];
}

Index PromptDesk::room(const PromptContent& content) const {
  return spec.length - static_cast<Index>(spec.leading.size()) -
         count(head_text(spec, content.head)) -
         (content.questions.empty() ? 0
                                    : count(question_text(spec, content.questions.front().text)));
}

std::vector<std::string> PromptDesk::fit(Index room,
                                         const std::function<std::string(Index)>& make) const {
  std::vector<std::string> items;
  while (true) {
    std::string item = make(static_cast<Index>(items.size()));
    if (item.empty()) return items;  // there are no more
    room -= count(item);
    if (room < 0) return items;
    items.push_back(std::move(item));
  }
}

std::vector<std::string> PromptDesk::words_of_prose(std::size_t n) {
  std::set<std::string> found;
  for (std::size_t size = 4096;; size *= 2) {  // only as much of a long text as is needed
    const std::size_t taken = std::min(size, filler.size());
    const auto start =
        static_cast<std::size_t>(draws.below(static_cast<Index>(filler.size() - taken) + 1));
    found = long_words(tokenizer.decode(filler.subspan(start, taken)));
    for (const std::string_view thing : kThings) found.erase(std::string(thing));
    if (found.size() >= n || taken == filler.size()) break;
  }
  std::vector<std::string> words(found.begin(), found.end());
  draws.shuffle(words);
  words.resize(std::min(n, words.size()));
  return words;
}

std::string head_text(const PromptSpec& spec, const std::string& head) {
  if (spec.chat == nullptr) return head;
  return spec.chat->before + head.substr(std::min(head.find_first_not_of(' '), head.size()));
}

void add_items(std::vector<std::string> items, PromptContent& content) {
  for (std::string& item : items) content.facts.push_back({std::move(item), 1.0});
}

Prompt assemble_prompt(PromptDesk& desk, PromptContent content) {
  const PromptSpec& spec = desk.spec;
  const Tokenizer& tokenizer = desk.tokenizer;
  if (static_cast<Index>(content.questions.size()) < spec.n_turns) {
    throw ConfigError(
        "prompt: a {} prompt has {} question{}, found {} turns; multi_key, kv_pairs and "
        "story_retrieval have several",
        enum_name(spec.kind), content.questions.size(), content.questions.size() == 1 ? "" : "s",
        spec.n_turns);
  }
  std::stable_sort(content.facts.begin(), content.facts.end(),
                   [](const PromptFact& a, const PromptFact& b) { return a.depth < b.depth; });
  const std::span<const TokenId> filler =
      content.own_filler.empty() ? desk.filler : std::span<const TokenId>(content.own_filler);
  const std::vector<TokenId> head = tokenizer.encode(head_text(spec, content.head));
  const std::vector<TokenId> question =
      tokenizer.encode(question_text(spec, content.questions.front().text));
  std::vector<std::vector<TokenId>> facts;
  auto n_fixed = static_cast<Index>(spec.leading.size() + head.size() + question.size());
  for (const PromptFact& fact : content.facts) {
    facts.push_back(tokenizer.encode(fact.text));
    n_fixed += static_cast<Index>(facts.back().size());
  }
  const Index room = spec.length - n_fixed;
  const auto n_filler = static_cast<Index>(filler.size());
  if (room < 0) {
    throw ConfigError("prompt: {} tokens are too few for a {} prompt, expected at least {}",
                      spec.length, enum_name(spec.kind), n_fixed);
  }
  if (room > n_filler) {
    throw ConfigError("prompt: the text has {} tokens, a prompt of {} needs {} of them", n_filler,
                      spec.length, room);
  }
  const Index start = desk.draws.below(n_filler - room + 1);
  Prompt prompt;
  prompt.tokens = spec.leading;
  prompt.tokens.insert(prompt.tokens.end(), head.begin(), head.end());
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
  prompt.n_context = static_cast<Index>(prompt.tokens.size());
  prompt.tokens.insert(prompt.tokens.end(), question.begin(), question.end());
  prompt.answers = content.questions.front().answers;
  prompt.n_answer_tokens = content.n_answer_tokens;
  for (std::size_t t = 1; t < static_cast<std::size_t>(spec.n_turns); ++t) {
    prompt.more.push_back({tokenizer.encode(next_question_text(spec, content.questions[t].text)),
                           content.questions[t].answers});
  }
  return prompt;
}

}  // namespace kvscope
