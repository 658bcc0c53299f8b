// The plan: what the commands of the runs have to show, counted by hand.
#include "analysis/papers/plan.hpp"

#include "tests/support/test.hpp"

namespace kvscope::papers::plan_test {

TEST_CASE("prompts and blocks of a command") {
  CHECK(units_of_command("simulate retrieval --kinds a,b --lengths 1,2,3 --depths 5 --trials 4") ==
        120);
  CHECK(units_of_command("simulate retrieval --kinds {pick:asked:accuracy:kind} --lengths 768,1536 "
                         "--depths 5 --trials 2") == 20);
  // 1024 tokens, a tenth of them prefilled, the last without a successor: 921 in blocks of 64
  CHECK(units_of_command("simulate perplexity --max-tokens 1024") == 14);
  CHECK(units_of_command("simulate perplexity --prefill 0 --max-tokens 4096 --windows 2") == 126);
  CHECK(std::isnan(units_of_command("bench nucleus --json")));
}

}  // namespace kvscope::papers::plan_test
