// What counts as the right answer to a prompt that asks for one number: that number, whole.

#include "analysis/simulate/prompts.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::score_answer_test {

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

}  // namespace kvscope::test::score_answer_test
