// Settings: every method of the registry has one that keeps more keys as it is turned up, or is
// named here as having none.
#include "core/selectors/budget_setting.hpp"

#include "tests/support/test.hpp"

#include <set>

namespace kvscope::budget_setting_test {

TEST_CASE("every method has a budget or declares a budget setting whose ends it takes") {
  const std::set<std::string> without = {"full", "think"};  // they keep every key
  for (const SelectorEntry& entry : selector_registry().entries()) {
    if (entry.is_own) continue;
    INFO(entry.name);
    const auto setting = BudgetSetting::of(entry.name, /*by_share=*/true, 4096);
    REQUIRE(setting.has_value() == !without.contains(entry.name));
    if (!setting) continue;
    CHECK(setting->low() < setting->high());
    for (const double value : {setting->low(), setting->high()}) {
      const MethodAtSetting at_end = setting->at(setting->rounded(value));
      CHECK(at_end.budget.has_value() == !at_end.selector.caps().budgets.empty());
      CHECK(at_end.selector.stages().back().method == &entry);
    }
  }
}

TEST_CASE("the setting follows the options that decide which one there is") {
  CHECK(BudgetSetting::of("spargeattn", true, 64)->text(0.5) == "tau=0.5");
  CHECK(BudgetSetting::of("spargeattn-topk", true, 64)->text(0.5) == "top-share=0.5");
  CHECK(BudgetSetting::of("spargeattn-p", true, 64)->text(0.5) == "p=0.5");
  CHECK(BudgetSetting::of("duoattention:by=threshold", true, 64)->falls());
  CHECK(!BudgetSetting::of("duoattention", true, 64)->falls());
  CHECK(BudgetSetting::of("moba", true, 64)->text(3.0) == "top-blocks=3");
  CHECK(BudgetSetting::of("blockmean", false, 64)->text(3.0) == "tokens=3");
  // a stack turns its last stage, and nothing where two stages would be turned at once
  CHECK(BudgetSetting::of("keydiff@tokens=32+quest", false, 64)->text(8.0) == "tokens=8");
  CHECK(!BudgetSetting::of(MethodSpec(), true, 64).has_value());
}

}  // namespace kvscope::budget_setting_test
