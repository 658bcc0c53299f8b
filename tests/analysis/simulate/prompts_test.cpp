// Retrieval prompts: facts where they were asked for, answers that score.
#include "analysis/simulate/prompts.hpp"

#include "core/base/data_dir.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::prompts_test {

struct Source {
  Tokenizer tokenizer = Tokenizer::load(embedded_verifier());
  std::vector<TokenId> filler =
      tokenizer.encode(testing::read_file(embedded_text()).substr(0, 40000));
};

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
  const Prompt prompt =
      make_prompt({PromptKind::passkey, 600, 0.5, 8, 0, 0}, source.filler, source.tokenizer);
  CHECK(score_answer(PromptKind::passkey, prompt.answers, " " + prompt.answers.front() + "1") ==
        0.0);
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

}  // namespace kvscope::test::prompts_test
