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

TEST_CASE("every check of an item that can be tested is in the plan, with its power") {
  std::vector<const Item*> all;
  std::size_t n_checks = 0;
  for (const Item& item : items()) {
    all.push_back(&item);
    n_checks += item.never.empty() ? item.checks.size() : 0;
  }
  const auto quick = plan_of(all, /*quick=*/true);
  const auto full = plan_of(all, /*quick=*/false);
  REQUIRE(quick.size() == n_checks);
  const auto at = std::ranges::find_if(quick, [](const PlannedCheck& one) {
    return one.item->id == "quoka-fig-4" && one.pairing == Pairing::prompt;
  });
  REQUIRE(at != quick.end());
  CHECK(at->units == 20);
  CHECK(at->counts == 0.3);
  CHECK(at->power == Approx(0.475).margin(0.01));  // 0.3 sqrt(20) / sqrt(0.5) - 1.96 = -0.063
  const auto same = full.begin() + (at - quick.begin());
  CHECK(same->units == 80);
  CHECK(same->power > at->power);
  const auto json = plan_json(quick);
  CHECK(json.at("checks").size() == n_checks);
  for (const char* field : {"hypothesis", "pairing", "threshold", "power"})
    CHECK(json.at("checks").at(0).contains(field));
  CHECK_HAS(plan_text(quick), "paired over 20 prompts");
}

}  // namespace kvscope::papers::plan_test
