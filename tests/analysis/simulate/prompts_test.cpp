// Prompts of every kind: exact lengths, facts where they were asked for, answers that stand in the
// text and are the answer, files of examples.
#include "analysis/simulate/prompts.hpp"

#include <map>
#include <set>

#include "analysis/simulate/chains.hpp"
#include "analysis/simulate/local_prompts.hpp"
#include "core/base/data_dir.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::prompts_test {

struct Source {
  Tokenizer tokenizer = Tokenizer::load(embedded_verifier());
  std::vector<TokenId> filler =
      tokenizer.encode(testing::read_file(embedded_text()).substr(0, 200000));
  Prompt make(PromptKind kind, Index length, double depth, Index trial = 0, Index turns = 1) const {
    PromptSpec spec{kind, length, depth, 8, /*seed=*/3, trial};
    spec.n_turns = turns;
    return make_prompt(spec, filler, tokenizer);
  }
  std::string text(const Prompt& prompt) const { return tokenizer.decode(prompt.tokens); }
};

/// How often each word stands in the prompt before its question.
std::map<std::string, int> word_counts(const std::string& text) {
  std::map<std::string, int> counts;
  std::string word;
  for (const char c : text) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      word += c;
    } else if (!word.empty()) {
      ++counts[word];
      word.clear();
    }
  }
  return counts;
}

TEST_CASE("every kind has exactly the asked tokens, and answers that score") {
  const Source source;
  for (std::size_t i = 0; i + 1 < EnumNames<PromptKind>::value.size(); ++i) {
    const auto kind = static_cast<PromptKind>(i);
    for (const Index length : {Index{512}, Index{2048}, Index{4100}}) {
      for (const double depth : {0.0, 0.4, 1.0}) {
        INFO(enum_name(kind) << ", " << length << " tokens, depth " << depth);
        const Prompt prompt = source.make(kind, length, depth);
        CHECK(static_cast<Index>(prompt.tokens.size()) == length);
        CHECK(prompt.n_context > 0);
        CHECK(prompt.n_context < length);
        CHECK(prompt.tokens == source.make(kind, length, depth).tokens);
        CHECK(prompt.tokens != source.make(kind, length, depth, 1).tokens);
        if (is_chain(kind)) continue;
        std::string all;
        for (const std::string& answer : prompt.answers) all += " " + answer + ",";
        CHECK(score_answer(kind, prompt.answers, all) == 1.0);
        CHECK(score_answer(kind, prompt.answers, " 0 nothing") == 0.0);
        const auto n_answer = static_cast<Index>(source.tokenizer.encode(all).size());
        CHECK(prompt.n_answer_tokens >= n_answer - 1);  // without the last comma
        if (kind == PromptKind::code_run) continue;     // computed, not written
        const std::string text = source.text(prompt);
        for (const std::string& answer : prompt.answers) CHECK_HAS(text, answer);
      }
    }
  }
}

TEST_CASE("the pass key stands at its depth, in the trained wording") {
  const Source source;
  for (const double depth : {0.0, 0.25, 0.5, 1.0}) {
    const Prompt prompt =
        make_prompt({PromptKind::passkey, 2000, depth, 8, 0, 0}, source.filler, source.tokenizer);
    const std::string fact = " The pass key is " + prompt.answers.front() + ". Remember it. " +
                             prompt.answers.front() + " is the pass key.";
    const auto fact_tokens = source.tokenizer.encode(fact);
    const auto found = std::search(prompt.tokens.begin(), prompt.tokens.end(), fact_tokens.begin(),
                                   fact_tokens.end());
    REQUIRE(found != prompt.tokens.end());
    const auto head = source.tokenizer
                          .encode(
                              " There is an important info hidden inside a lot of irrelevant "
                              "text. Find it and memorize it. I will quiz you about the "
                              "important information there.\n")
                          .size();
    const auto question = source.tokenizer.encode(" What is the pass key? The pass key is").size();
    const auto room = 2000 - head - question - fact_tokens.size();
    const auto at = static_cast<double>(found - prompt.tokens.begin()) - static_cast<double>(head);
    CHECK(std::abs(at - depth * static_cast<double>(room)) <= 0.5);
  }
}

TEST_CASE("prompts that cannot be are refused") {
  const Source source;
  const auto make = [&](PromptSpec spec) {
    return make_prompt(spec, source.filler, source.tokenizer);
  };
  CHECK_THROWS_AS(make({PromptKind::passkey, 20, 0.5, 8, 0, 0}), ConfigError);
  CHECK_THROWS_AS(make({PromptKind::passkey, 1000, 1.5, 8, 0, 0}), ConfigError);
  CHECK_THROWS_AS(make({PromptKind::multi_key, 1000, 0.5, 0, 0, 0}), ConfigError);
  CHECK_THROWS_AS(make({PromptKind::multi_key, 10000, 0.5, 100, 0, 0}), ConfigError);
  CHECK_SAYS(make({PromptKind::passkey, 100000, 0.5, 8, 0, 0}), "tokens, a prompt of 100000 needs");
}

TEST_CASE("of a number, neither a part nor more is an answer") {
  const auto score = [](std::string_view generated) {
    return score_answer(PromptKind::passkey, {"48213"}, generated);
  };
  CHECK(score(" 48213") == 1.0);
  CHECK(score(" 48213. That is the key 11111.") == 1.0);
  CHECK(score("The key is 48213") == 1.0);
  for (const char* wrong : {" 4", " 482", " 4821 3", " 4821.", " 482130", " 148213", " 48214",
                            " 11111 48213", " none", ""}) {
    INFO(wrong);
    CHECK(score(wrong) == 0.0);
  }
}

TEST_CASE("the common words are the most frequent ones, in every prompt") {
  const Source source;
  for (const Index length : {512, 1024, 2048, 4096, 8192}) {
    for (Index trial = 0; trial < 20; ++trial) {
      const Prompt prompt = source.make(PromptKind::common_words, length, 0.5, trial);
      std::string text = source.text(prompt);
      text.resize(text.find(" What are the 10 most common"));
      auto counts = word_counts(text);
      int least = 1000;
      for (const std::string& answer : prompt.answers) least = std::min(least, counts[answer]);
      for (const std::string& answer : prompt.answers) counts.erase(answer);
      int most = 0;
      for (const auto& [word, n] : counts) most = std::max(most, n);
      INFO(length << " tokens, trial " << trial << ": " << least << " against " << most);
      CHECK(least == (length < 4096 ? 6 : 30));
      CHECK(most < least / 2);
    }
  }
}

TEST_CASE("coded words fall as Zipf's law, the three asked are the first three") {
  const Source source;
  for (const Index length : {512, 4096}) {
    const Prompt prompt = source.make(PromptKind::fwe, length, 0.5);
    std::string text = source.text(prompt);
    text.resize(text.find(" What are the 3"));
    auto counts = word_counts(text);
    const int a = counts[prompt.answers[0]], b = counts[prompt.answers[1]],
              c = counts[prompt.answers[2]];
    for (const std::string& answer : prompt.answers) counts.erase(answer);
    int most = 0;
    for (const auto& [word, n] : counts) {
      if (word.size() == 6) most = std::max(most, n);
    }
    CHECK(a > b);
    CHECK(b > c);
    CHECK(c > most);
    CHECK(std::abs(a - 4 * b) <= 8);
  }
}

TEST_CASE("lists: the largest number, the value of a chain, the journey's answers") {
  const Source source;
  for (Index trial = 0; trial < 10; ++trial) {
    const Prompt largest = source.make(PromptKind::math_find, 1024, 0.3, trial);
    const std::string list = source.text(largest);
    int most = 0;
    for (std::size_t at = 0; (at = list.find(' ', at)) != std::string::npos; ++at) {
      const std::size_t end = list.find(',', at);
      if (end == at + 4) most = std::max(most, std::atoi(list.substr(at + 1, 3).c_str()));
    }
    CHECK(std::to_string(most) == largest.answers.front());

    // follow the functions
    const Prompt code = source.make(PromptKind::code_run, 1024, 0.3, trial);
    const std::string program = source.text(code);
    const std::size_t ask = program.find(" What is ");
    std::string name = program.substr(ask + 9, 8);
    int value = std::atoi(program.c_str() + ask + 18);
    while (true) {
      const std::size_t at = program.find(" def " + name + "(x): return ");
      REQUIRE(at != std::string::npos);
      const std::string line = program.substr(at + 25, program.find('.', at) - at - 25);
      value += std::atoi(line.c_str() + line.find("+ ") + 2);
      if (line.starts_with("x")) break;
      name = line.substr(0, 8);
    }
    CHECK(std::to_string(value) == code.answers.front());

    const Prompt filter = source.make(PromptKind::story_filtering, 1024, 0.3, trial);
    CHECK(filter.answers.size() == 3);
    const std::string story = source.text(filter);
    std::size_t n_nothing = 0;
    for (std::size_t at = 0; (at = story.find("bought nothing", at)) != std::string::npos; ++at)
      ++n_nothing;
    CHECK(n_nothing == 3);
    for (const std::string& chapter : filter.answers) {
      const std::size_t at = story.find(" Chapter " + chapter + ".");
      CHECK(story.substr(at, story.find(" Chapter ", at + 5) - at).find("bought nothing") !=
            std::string::npos);
    }
  }
}

TEST_CASE("turns ask different questions, special tokens stand in front") {
  const Source source;
  for (const PromptKind kind : {PromptKind::multi_key, PromptKind::kv_pairs,
                                PromptKind::niah_multikey_2, PromptKind::story_retrieval}) {
    INFO(enum_name(kind));
    const Prompt prompt = source.make(kind, 1024, 0.5, 0, 4);
    REQUIRE(prompt.more.size() == 3);
    std::set<std::vector<TokenId>> questions = {
        {prompt.tokens.begin() + prompt.n_context, prompt.tokens.end()}};
    for (const PromptTurn& turn : prompt.more) questions.insert(turn.tokens);
    CHECK(questions.size() == 4);
  }
  PromptSpec spec{.leading = {0}};
  const Prompt prompt = make_prompt(spec, source.filler, source.tokenizer);
  CHECK(prompt.tokens.front() == 0);
  CHECK(static_cast<Index>(prompt.tokens.size()) == spec.length);
  CHECK(leading_special_tokens(source.tokenizer).empty());  // no template in this tokenizer
}

TEST_CASE("examples of a file: fields, cuts in the middle, wrong lines") {
  const Source source;
  const TempDir dir;
  const auto file = dir.write(
      "a.jsonl",
      "{\"context\": \"Once there was a stone. It was red. \", \"question\": \"Which colour?\", "
      "\"answer_prefix\": \" It is\", \"answer\": [\"red\", \"crimson\"], \"max_new_tokens\": 4}\n"
      "\n{\"context\": \"x\", \"answers\": \"y\"}\n");
  const auto examples = read_local_examples(file);
  REQUIRE(examples.size() == 2);
  CHECK(examples[0].answers == std::vector<std::string>{"red", "crimson"});
  CHECK(examples[1].max_new_tokens == 32);
  PromptSpec spec{.kind = PromptKind::local};
  const Prompt whole = make_local_prompt(examples[0], spec, source.tokenizer);
  CHECK(source.text(whole) == "Once there was a stone. It was red. Which colour? It is");
  CHECK(whole.n_answer_tokens == 4);
  spec.length = 16;
  const Prompt cut = make_local_prompt(examples[0], spec, source.tokenizer);
  CHECK(cut.tokens.size() == 16);
  CHECK(source.text(cut).starts_with("Once"));
  CHECK(source.text(cut).ends_with("Which colour? It is"));
  spec.length = 4;
  CHECK_THROWS_AS(make_local_prompt(examples[0], spec, source.tokenizer), ConfigError);
  CHECK(score_answer(PromptKind::local, examples[0].answers, " crimson.") == 1.0);
  CHECK(score_answer(PromptKind::local, examples[0].answers, " reddish.") == 0.0);
  for (const char* line :
       {"{\"question\": \"q\", \"answer\": \"a\"}", "{\"context\": \"c\"}",
        "{\"context\": \"c\", \"answer\": 7}", "{\"context\": \"c\", \"answer\": []}",
        "{\"context\": \"c\", \"answer\": \"a\", \"max_new_tokens\": 0}", "[]", "{", ""}) {
    INFO(line);
    CHECK_THROWS_AS(read_local_examples(dir.write("b.jsonl", line)), FormatError);
  }
  CHECK_SAYS(read_local_examples(dir.write("b.jsonl", "\n{\"context\": 1}\n")), "b.jsonl, line 2",
             "context");
}

}  // namespace kvscope::test::prompts_test
