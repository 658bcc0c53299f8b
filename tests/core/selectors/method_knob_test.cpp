// Knobs: every method of the registry has one that keeps more keys as it is turned up, or is named
// here as having none.
#include "core/selectors/method_knob.hpp"

#include "tests/support/test.hpp"

#include <set>

namespace kvscope::method_knob_test {

TEST_CASE("every method has a budget or declares a knob whose ends it takes") {
  const std::set<std::string> without = {"full", "think"};  // they keep every key
  for (const SelectorEntry& entry : selector_registry().entries()) {
    if (entry.is_own) continue;
    INFO(entry.name);
    const auto knob = MethodKnob::of(entry.name, /*by_share=*/true, 4096);
    REQUIRE(knob.has_value() == !without.contains(entry.name));
    if (!knob) continue;
    CHECK(knob->low() < knob->high());
    for (const double value : {knob->low(), knob->high()}) {
      const KnobSetting setting = knob->at(knob->rounded(value));
      CHECK(setting.budget.has_value() == !setting.selector.caps().budgets.empty());
      CHECK(setting.selector.stages().back().method == &entry);
    }
  }
}

TEST_CASE("the knob follows the options that decide which one there is") {
  CHECK(MethodKnob::of("spargeattn", true, 64)->text(0.5) == "tau=0.5");
  CHECK(MethodKnob::of("spargeattn-topk", true, 64)->text(0.5) == "top-share=0.5");
  CHECK(MethodKnob::of("spargeattn-p", true, 64)->text(0.5) == "p=0.5");
  CHECK(MethodKnob::of("duoattention:by=threshold", true, 64)->falls());
  CHECK(!MethodKnob::of("duoattention", true, 64)->falls());
  CHECK(MethodKnob::of("moba", true, 64)->text(3.0) == "top-blocks=3");
  CHECK(MethodKnob::of("blockmean", false, 64)->text(3.0) == "tokens=3");
  // a stack turns its last stage, and nothing where two stages would be turned at once
  CHECK(MethodKnob::of("keydiff@tokens=32+quest", false, 64)->text(8.0) == "tokens=8");
  CHECK(!MethodKnob::of(MethodSpec(), true, 64).has_value());
}

}  // namespace kvscope::method_knob_test
