#include "analysis/simulate/prompts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "analysis/simulate/chains.hpp"
#include "analysis/simulate/prompt_kit.hpp"
#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/lists.hpp"

namespace kvscope {

namespace {

constexpr std::string_view kHead =
    " There is an important info hidden inside a lot of irrelevant text. Find it and memorize it. "
    "I will quiz you about the important information there.\n";

PromptContent passkey(PromptDesk& desk) {
  const std::string key = desk.draws.number();
  return {std::string(kHead),
          {{fmt::format(" The pass key is {}. Remember it. {} is the pass key.", key, key),
            desk.spec.depth}},
          {{" What is the pass key? The pass key is", {key}}}};
}

PromptContent number_string(PromptDesk& desk) {
  std::string key;
  while (key.size() < 10) {  // every digit comes one to three times
    const auto digit = static_cast<char>('1' + desk.draws.below(9));
    const auto times = static_cast<std::size_t>(1 + desk.draws.below(3));
    key.append(std::min<std::size_t>(10 - key.size(), times), digit);
  }
  PromptContent content = {
      std::string(kHead),
      {{fmt::format(" The sequence of digits is {}. Remember it. {} is the sequence of digits.",
                    key, key),
        desk.spec.depth}},
      {{" What is the sequence of digits? The sequence of digits is", {key}}}};
  content.n_answer_tokens = 16;
  return content;
}

/// n_facts magic numbers; the first stands at the depth and is asked for first.
PromptContent multi_key(PromptDesk& desk, Index n_facts) {
  PromptContent content;
  const auto names = prompt_things();
  const auto things = desk.draws.choose(names.size(), static_cast<std::size_t>(n_facts));
  for (std::size_t i = 0; i < things.size(); ++i) {
    const std::string number = desk.draws.number();
    content.facts.push_back(
        {magic_number(names[things[i]], number), i == 0 ? desk.spec.depth : desk.draws.depth()});
    content.questions.push_back(ask_number(names[things[i]], number));
  }
  return content;
}

PromptContent multi_query(PromptDesk& desk) {
  PromptContent content = multi_key(desk, 4);
  const std::vector<PromptQuestion> single = std::move(content.questions);
  std::vector<std::string> asked;
  std::vector<std::string> answers;
  for (const PromptQuestion& question : single) {
    const std::size_t begin = question.text.find("of the ") + 7;
    asked.push_back("the " + question.text.substr(begin, question.text.find('?') - begin));
    answers.push_back(question.answers.front());
  }
  const std::string list = fmt::format("{}", fmt::join(asked, ", "));
  content.questions = {
      {fmt::format(" What are the magic numbers of {}? The magic numbers of {} are", list, list),
       answers}};
  content.n_answer_tokens = 40;
  return content;
}

PromptContent multi_value(PromptDesk& desk) {
  constexpr Index kValues = 4;
  PromptContent content;
  const std::string_view thing = desk.thing();
  std::vector<std::string> answers;
  for (Index i = 0; i < kValues; ++i) {
    answers.push_back(desk.draws.number());
    content.facts.push_back(
        {magic_number(thing, answers.back()), i == 0 ? desk.spec.depth : desk.draws.depth()});
  }
  content.questions = {
      {fmt::format(" What are all the magic numbers of the {}? The magic numbers of the {} are",
                   thing, thing),
       answers}};
  content.n_answer_tokens = 40;
  return content;
}

PromptContent variable_tracking(PromptDesk& desk) {
  constexpr Index kChain = 4;
  PromptContent content;
  const auto names = prompt_things();
  const std::string value = desk.draws.number();
  const auto things = desk.draws.choose(names.size(), kChain);
  std::vector<double> depths = {desk.spec.depth};
  for (Index i = 1; i < kChain; ++i) depths.push_back(desk.draws.depth());
  std::sort(depths.begin(), depths.end());  // a chain reads in order
  std::vector<std::string> answers;
  for (std::size_t i = 0; i < things.size(); ++i) {
    const std::string_view thing = names[things[i]];
    content.facts.push_back({i == 0 ? magic_number(thing, value)
                                    : fmt::format(" The magic number of the {} is that of the {}.",
                                                  thing, names[things[i - 1]]),
                             depths[i]});
    answers.emplace_back(thing);
  }
  content.questions = {
      {fmt::format(" Which things have the magic number {}? The things with the magic number {} "
                   "are the",
                   value, value),
       answers}};
  content.n_answer_tokens = 40;
  return content;
}

/// How a kind is written, and whether its answer is one number. Chains and the examples of a file
/// are written otherwise.
struct KindEntry {
  PromptContent (*write)(PromptDesk& desk) = nullptr;
  bool has_one_number = false;
};

const KindEntry& entry_of(PromptKind kind) {
  static constexpr std::array<KindEntry, EnumNames<PromptKind>::value.size()> kEntries = {{
      {passkey, true},
      {[](PromptDesk& desk) { return multi_key(desk, desk.spec.n_facts); }, true},
      {multi_value},
      {variable_tracking},
      {common_words_content},
      {noise_key_content, true},
      {[](PromptDesk& desk) { return multi_key(desk, 1); }, true},
      {code_key_content},
      {[](PromptDesk& desk) { return multi_key(desk, 4); }, true},
      {only_numbers_content, true},
      {only_codes_content},
      {multi_query},
      {frequent_words_content},
      {number_string, true},
      {only_codes_content},
      {largest_number_content, true},
      {function_chain_content, true},
      {story_content},
      {story_content},
      {story_content},
  }};
  return kEntries[static_cast<std::size_t>(kind)];
}

void check_spec(const PromptSpec& spec) {
  if (!(spec.depth >= 0.0 && spec.depth <= 1.0))
    throw ConfigError("prompt: expected a depth in [0, 1], found {}", spec.depth);
  const auto most = static_cast<Index>(prompt_things().size());
  if (spec.n_facts < 1 || spec.n_facts > most)
    throw ConfigError("prompt: expected 1 to {} facts, found {}", most, spec.n_facts);
}

bool is_word_sign(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// True if `word` stands in the text with neither letters nor digits beside it.
bool has_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != std::string_view::npos;
       at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_word_sign(text[at - 1])) &&
        (end == text.size() || !is_word_sign(text[end])))
      return true;
  }
  return false;
}

using Kinds = std::vector<PromptKind>;

Kinds family_of(std::string_view word) {
  using enum PromptKind;
  if (word == "ruler") {
    return {niah_single_1,
            niah_single_2,
            niah_single_3,
            niah_multikey_1,
            niah_multikey_2,
            niah_multikey_3,
            multi_value,
            niah_multiquery,
            variable_tracking,
            common_words,
            fwe};
  }
  if (word == "infinitebench") return {passkey, number_string, kv_pairs, math_find, code_run};
  if (word == "story") return {story_retrieval, story_multihop, story_filtering};
  if (word == "chain") return {copy, running_sum, rewriting};
  if (word == "niah_multivalue") return {multi_value};
  if (word == "vt") return {variable_tracking};
  if (word == "cwe") return {common_words};
  return {};
}

}  // namespace

std::vector<PromptKind> parse_prompt_kinds(std::string_view text) {
  Kinds kinds;
  for (const std::string& word : split_words(std::string(text), ',')) {
    Kinds found = family_of(word);
    const auto& names = EnumNames<PromptKind>::value;
    const auto at = std::find(names.begin(), names.end() - 1, word);  // local comes with a file
    if (at != names.end() - 1) found = {static_cast<PromptKind>(at - names.begin())};
    if (found.empty()) {
      throw ConfigError(
          "kinds: expected some of {}, a name of RULER (niah_multivalue, vt, cwe) or a family "
          "(ruler, infinitebench, story, chain), found {}",
          fmt::join(names.begin(), names.end() - 1, ", "), quote(word));
    }
    for (const PromptKind kind : found) {
      if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end())
        throw ConfigError("kinds: {} is given twice", enum_name(kind));
      kinds.push_back(kind);
    }
  }
  return kinds;
}

Prompt make_prompt(const PromptSpec& spec, std::span<const TokenId> filler,
                   const Tokenizer& tokenizer) {
  check_spec(spec);
  if (is_chain(spec.kind)) return make_chain(spec, filler, tokenizer);
  if (spec.kind == PromptKind::local)
    throw ConfigError("prompt: examples of a file are not made: expected another kind than local");
  PromptDesk desk{spec, filler, tokenizer};
  return assemble_prompt(desk, entry_of(spec.kind).write(desk));
}

double score_answer(PromptKind kind, const std::vector<std::string>& answers,
                    std::string_view generated) {
  if (entry_of(kind).has_one_number) {
    constexpr std::string_view kDigits = "0123456789";
    const std::size_t begin = generated.find_first_of(kDigits);
    if (begin == std::string_view::npos) return 0.0;
    const std::size_t end = std::min(generated.find_first_not_of(kDigits, begin), generated.size());
    return generated.substr(begin, end - begin) == answers.front() ? 1.0 : 0.0;
  }
  const auto n_found =
      std::count_if(answers.begin(), answers.end(),
                    [&](const std::string& answer) { return has_word(generated, answer); });
  if (kind == PromptKind::local) return n_found > 0 ? 1.0 : 0.0;
  return static_cast<double>(n_found) / static_cast<double>(answers.size());
}

std::vector<TokenId> leading_special_tokens(const Tokenizer& tokenizer) {
  constexpr std::string_view kText = "a";
  const std::vector<TokenId> plain = tokenizer.encode(kText);
  std::vector<TokenId> whole = tokenizer.encode(kText, /*add_special=*/true);
  const auto text = std::search(whole.begin(), whole.end(), plain.begin(), plain.end());
  if (text == whole.end()) return {};  // a template that changes the text itself
  whole.erase(text, whole.end());
  return whole;
}

std::vector<TokenId> leading_in_chat(const ChatFrame& chat, const std::vector<TokenId>& leading,
                                     const Tokenizer& tokenizer) {
  const std::vector<TokenId> before = tokenizer.encode(chat.before);
  const bool has_them =
      before.size() >= leading.size() && std::equal(leading.begin(), leading.end(), before.begin());
  return has_them ? std::vector<TokenId>() : leading;
}

}  // namespace kvscope
