// RULER's and InfiniteBench's generated tasks that fill the whole prompt by themselves.
//
// As in the published generators: common words come 30 times and others 3 times (6 and 1 below 4096
// tokens); coded words follow Zipf's law with exponent 2; counts are fixed, never drawn, so that
// the answer is the answer.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/simulate/prompt_kit.hpp"
#include "core/base/error.hpp"

namespace kvscope {

namespace {

/// A random code in the form of a UUID.
std::string draw_uuid(PromptDraws& draws) {
  std::string text = draws.code(8);
  for (const Index n : {4, 4, 4, 12}) text += "-" + draws.code(n);
  return text;
}

void require_items(const PromptSpec& spec, std::size_t n, std::size_t least) {
  if (n >= least) return;
  throw ConfigError(
      "prompt: {} tokens are too few for a {} prompt: {} of its parts fit, expected at least {}",
      spec.length, enum_name(spec.kind), n, least);
}

/// Nothing but facts about keys, of which `ask` asks for some: the first asked stands at the depth,
/// the further ones (turns) anywhere.
struct Pair {
  std::string key;
  std::string value;
};
PromptContent full_of_pairs(PromptDesk& desk, const std::function<Pair(Index)>& draw,
                            const std::function<std::string(const Pair&)>& fact,
                            const std::function<std::string(const Pair&)>& question) {
  PromptContent content;
  std::vector<Pair> pairs;
  const Pair longest = draw(-1);  // questions differ by a token or two; none is longer than this
  Index slack = 0;
  for (int i = 0; i < 4; ++i) slack = std::max(slack, desk.count(question(draw(-1))));
  content.questions = {{question(longest), {longest.value}}};
  const Index room = desk.room(content) - std::max<Index>(8, slack / 4);
  std::vector<std::string> items = desk.fit(room, [&](Index i) {
    pairs.push_back(draw(i));
    return pairs.back().key.empty() ? std::string() : fact(pairs.back());
  });
  require_items(desk.spec, items.size(),
                static_cast<std::size_t>(std::max<Index>(2, desk.spec.n_turns)));
  const auto n = static_cast<double>(items.size() - 1);
  const auto first = static_cast<std::size_t>(std::llround(desk.spec.depth * n));
  content.questions = {{question(pairs[first]), {pairs[first].value}}};
  for (const std::size_t at : desk.draws.choose(items.size(), items.size())) {
    if (at != first) content.questions.push_back({question(pairs[at]), {pairs[at].value}});
    if (static_cast<Index>(content.questions.size()) >= desk.spec.n_turns) break;
  }
  content.n_answer_tokens = desk.count(" " + longest.value) + 6;
  add_items(std::move(items), content);
  return content;
}

}  // namespace

PromptContent common_words_content(PromptDesk& desk) {
  constexpr std::size_t kCommon = 10;
  const bool is_long = desk.spec.length >= 4096;
  const int n_common = is_long ? 30 : 6;
  const int n_other = is_long ? 3 : 1;
  PromptContent content;
  content.n_answer_tokens = 60;
  std::vector<std::string> answers;
  const auto things = prompt_things();
  for (const std::size_t at : desk.draws.choose(things.size(), kCommon))
    answers.emplace_back(things[at]);
  content.questions = {
      {" What are the 10 most common words above? The most common words are", answers}};
  Index room = desk.room(content);
  std::vector<std::string> items;
  const auto add = [&](const std::string& word, int times) {
    const std::string item = fmt::format(" {}.", word);
    const Index cost = desk.count(item) * times;
    if (cost > room) return false;
    room -= cost;
    items.insert(items.end(), static_cast<std::size_t>(times), item);
    return true;
  };
  for (const std::string& word : answers) {
    if (!add(word, n_common)) require_items(desk.spec, items.size(), kCommon * 6);
  }
  const auto wanted = static_cast<std::size_t>(std::max<Index>(1, room / (2 * n_other)));
  for (const std::string& word : desk.words_of_prose(wanted)) {
    if (!add(word, n_other)) break;
  }
  desk.draws.shuffle(items);
  add_items(std::move(items), content);
  return content;
}

/// Coded words whose counts fall as 1 / rank^2.
PromptContent frequent_words_content(PromptDesk& desk) {
  constexpr std::size_t kAsked = 3;
  constexpr double kZeta2 = 1.6449340668482264;
  PromptContent content;
  content.n_answer_tokens = 40;
  std::vector<std::string> words;
  std::set<std::string> known;
  while (words.size() < 60) {
    std::string word;
    for (int i = 0; i < 6; ++i) word += static_cast<char>('a' + desk.draws.below(26));
    if (known.insert(word).second) words.push_back(std::move(word));
  }
  content.questions = {
      {" What are the 3 most frequent coded words above? The most frequent coded words are",
       {words.begin(), words.begin() + kAsked}}};
  const Index room = desk.room(content);
  const auto count_of = [&](Index n_words, std::size_t rank) {
    const double share = 1.0 / (kZeta2 * static_cast<double>((rank + 1) * (rank + 1)));
    return static_cast<Index>(std::floor(share * static_cast<double>(n_words)));
  };
  std::vector<Index> costs;
  for (const std::string& word : words) costs.push_back(desk.count(fmt::format(" {}.", word)));
  Index n_words = 0;
  for (Index step = Index{1} << 24; step > 0; step /= 2) {  // the most words that fit
    Index cost = 0;
    for (std::size_t r = 0; r < words.size(); ++r) cost += count_of(n_words + step, r) * costs[r];
    if (cost <= room) n_words += step;
  }
  require_items(desk.spec, static_cast<std::size_t>(n_words), 40);  // ranks 3 and 4 differ
  std::vector<std::string> items;
  for (std::size_t r = 0; r < words.size(); ++r) {
    items.insert(items.end(), static_cast<std::size_t>(count_of(n_words, r)),
                 fmt::format(" {}.", words[r]));
  }
  desk.draws.shuffle(items);
  add_items(std::move(items), content);
  return content;
}

/// One magic number in sentences that repeat.
PromptContent noise_key_content(PromptDesk& desk) {
  PromptContent content;
  const std::string_view thing = desk.thing();
  const std::string number = desk.draws.number();
  content.facts = {{magic_number(thing, number), desk.spec.depth}};
  content.questions = {ask_number(thing, number)};
  const auto sentence = desk.tokenizer.encode(
      " The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.");
  while (static_cast<Index>(content.own_filler.size()) < desk.spec.length)
    content.own_filler.insert(content.own_filler.end(), sentence.begin(), sentence.end());
  return content;
}

/// One magic code in prose.
PromptContent code_key_content(PromptDesk& desk) {
  PromptContent content;
  const std::string_view thing = desk.thing();
  const std::string code = draw_uuid(desk.draws);
  content.facts = {{fmt::format(" The magic code of the {} is {}.", thing, code), desk.spec.depth}};
  content.questions = {
      {fmt::format(" What is the magic code of the {}? The magic code of the {} is", thing, thing),
       {code}}};
  content.n_answer_tokens = desk.count(" " + code) + 4;
  return content;
}

PromptContent only_numbers_content(PromptDesk& desk) {
  const auto words = desk.words_of_prose(static_cast<std::size_t>(desk.spec.length / 8));
  return full_of_pairs(
      desk,
      [&](Index i) -> Pair {  // -1: any
        const std::size_t at = i < 0 ? 0 : static_cast<std::size_t>(i);
        return at < words.size() ? Pair{words[at], desk.draws.number()} : Pair{};
      },
      [](const Pair& pair) { return magic_number(pair.key, pair.value); },
      [](const Pair& pair) { return ask_number(pair.key, pair.value).text; });
}

/// niah_multikey_3, kv_pairs
PromptContent only_codes_content(PromptDesk& desk) {
  const auto draw = [&](Index) -> Pair { return {draw_uuid(desk.draws), draw_uuid(desk.draws)}; };
  if (desk.spec.kind == PromptKind::kv_pairs) {
    return full_of_pairs(
        desk, draw,
        [](const Pair& pair) { return fmt::format(" \"{}\": \"{}\",", pair.key, pair.value); },
        [](const Pair& pair) {
          return fmt::format(" What is the value of the key \"{}\"? The value is", pair.key);
        });
  }
  return full_of_pairs(
      desk, draw,
      [](const Pair& pair) {
        return fmt::format(" The magic code of {} is {}.", pair.key, pair.value);
      },
      [](const Pair& pair) {
        return fmt::format(" What is the magic code of {}? The magic code of {} is", pair.key,
                           pair.key);
      });
}

PromptContent largest_number_content(PromptDesk& desk) {
  // Another in every prompt, so that it cannot be guessed.
  const Index top = 500 + desk.draws.below(499);
  PromptContent content;
  content.questions = {
      {" What is the largest number in the list? The largest number in the list is",
       {fmt::format("{}", top)}}};
  std::vector<std::string> items = desk.fit(desk.room(content), [&](Index) {
    return fmt::format(" {},", 100 + desk.draws.below(top - 100));
  });
  require_items(desk.spec, items.size(), 2);
  const auto at = static_cast<std::size_t>(
      std::llround(desk.spec.depth * static_cast<double>(items.size() - 1)));
  std::string own = fmt::format(" {},", top);
  while (desk.count(own) > desk.count(items[at]) && items.size() > at + 1) items.pop_back();
  items[at] = std::move(own);
  add_items(std::move(items), content);
  return content;
}

/// func_12(x) returns func_7(x) + 5: a chain of three, the rest functions that nobody asks for.
PromptContent function_chain_content(PromptDesk& desk) {
  constexpr std::size_t kChain = 3;
  const auto numbers = desk.draws.choose(900, 900);
  const auto name = [&](std::size_t i) { return fmt::format("func_{}", 100 + numbers[i]); };
  const Index argument = 1 + desk.draws.below(20);
  Index value = argument;
  std::vector<std::string> chain;
  for (std::size_t i = 0; i < kChain; ++i) {
    const Index constant = 1 + desk.draws.below(20);
    value += constant;
    chain.push_back(i + 1 < kChain ? fmt::format(" def {}(x): return {}(x) + {}.", name(i),
                                                 name(i + 1), constant)
                                   : fmt::format(" def {}(x): return x + {}.", name(i), constant));
  }
  PromptContent content;
  content.questions = {
      {fmt::format(" What is {}({})? The value of {}({}) is", name(0), argument, name(0), argument),
       {fmt::format("{}", value)}}};
  Index room = desk.room(content);
  for (const std::string& line : chain) room -= desk.count(line);
  std::size_t next = kChain;
  std::vector<std::string> items = desk.fit(std::max<Index>(0, room), [&](Index) {
    if (next + 1 >= numbers.size()) return std::string();
    std::string line = fmt::format(" def {}(x): return {}(x) + {}.", name(next), name(next + 1),
                                   1 + desk.draws.below(20));
    ++next;
    return line;
  });
  require_items(desk.spec, room < 0 ? 0 : kChain, kChain);
  std::vector<std::size_t> places = {
      static_cast<std::size_t>(std::llround(desk.spec.depth * static_cast<double>(items.size())))};
  for (std::size_t i = 1; i < kChain; ++i)
    places.push_back(
        static_cast<std::size_t>(desk.draws.below(static_cast<Index>(items.size()) + 1)));
  for (std::size_t i = 0; i < kChain; ++i)
    items.insert(items.begin() + static_cast<Index>(std::min(places[i], items.size())), chain[i]);
  add_items(std::move(items), content);
  return content;
}

}  // namespace kvscope
