// Chains: what follows is known, and is what the prompt began; errors are counted where they begin.
#include "analysis/simulate/chains.hpp"

#include "core/base/data_dir.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::chains_test {

TEST_CASE("chains go on as their prompts begin") {
  const Tokenizer tokenizer = Tokenizer::load(embedded_verifier());
  const std::vector<TokenId> text =
      tokenizer.encode(testing::read_file(embedded_text()).substr(0, 20000));
  PromptSpec spec{.length = 220, .n_steps = 300};
  const auto chain = [&](PromptKind kind, Index trial = 0) {
    spec.kind = kind;
    spec.trial = trial;
    return make_prompt(spec, text, tokenizer);
  };
  const Prompt copy = chain(PromptKind::copy);
  CHECK(copy.tokens.size() == 220);
  CHECK(copy.continuation.size() == 300);
  auto all = copy.tokens;
  all.insert(all.end(), copy.continuation.begin(), copy.continuation.end());
  for (std::size_t i = 200; i < all.size(); ++i) CHECK(all[i] == all[i - 200]);

  const Prompt sum = chain(PromptKind::running_sum);
  all = sum.tokens;
  all.insert(all.end(), sum.continuation.begin(), sum.continuation.end());
  const std::string words = tokenizer.decode(all);
  int addends[3] = {}, value = 0;
  REQUIRE(std::sscanf(words.c_str(), " Add %d, %d and %d in turn, modulo 1000: %d,", &addends[0],
                      &addends[1], &addends[2], &value) == 4);
  std::size_t at = words.find(':') + 1;
  for (int i = 0; (at = words.find(',', at)) != std::string::npos; ++i, ++at) {
    const std::size_t end = words.find(',', at + 1);
    if (end == std::string::npos) break;
    value = (value + addends[i % 3]) % 1000;
    CHECK(std::stoi(words.substr(at + 1, end - at - 1)) == value);
  }
  CHECK(chain(PromptKind::rewriting, 1).tokens != chain(PromptKind::rewriting, 2).tokens);
  CHECK(share_before_error(std::vector<TokenId>{1, 2, 3, 4}, std::vector<TokenId>{1, 2, 4, 4}) ==
        0.5);
  spec.n_turns = 2;
  CHECK_SAYS(chain(PromptKind::copy), "a chain goes on as it began", "2 turns");
}

}  // namespace kvscope::test::chains_test
