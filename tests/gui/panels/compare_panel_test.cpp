// The compare panel: two methods, two budgets, clicks, and the other trace.

#include "tests/gui/app_rig.hpp"
#include "tests/support/test.hpp"

namespace kvscope::gui::test::compare_panel_test {

struct CompareRig : Rig {
  CompareRig() {
    open_pair(/*with_draft=*/true);
    session().set_parameters("test", [](Parameters& p) {
      p.budget = 32;
      p.chunk = 64;
    });
    app().show_panel_alone("compare");
    settle();
  }
  Panel& with(const nlohmann::ordered_json& options) {
    app().panel("compare").set_options(options);
    settle();
    return app().panel("compare");
  }
};

TEST_CASE("compare: nothing open, and two methods that cannot be compared") {
  Rig rig;
  rig.app().show_panel_alone("compare");
  rig.settle();
  CHECK_FALSE(rig.app().panel("compare").figure());
  rig.open_pair();
  rig.session().select("test", [](Selection& s) { s.other = s.selector; });
  rig.settle();
  CHECK_FALSE(rig.app().panel("compare").figure());
  CHECK(rig.session().notices().empty());
}

TEST_CASE("compare: the difference of two methods is that of what both keep") {
  CompareRig rig;
  const auto both = rig.with({{"metric", "kept"}}).figure();
  const auto difference = rig.with({{"metric", "difference"}}).figure();
  REQUIRE(both);
  REQUIRE(difference);
  REQUIRE(both->panels.size() == 3);
  REQUIRE(difference->panels.size() == 1);
  const auto cells = [](const plot::Panel& panel) {
    return std::get<plot::HeatMap>(panel.marks[0]).values;
  };
  const auto a = cells(both->panels[1]);
  const auto b = cells(both->panels[2]);
  const auto less = cells(difference->panels[0]);
  REQUIRE(a.size() == less.size());
  const auto kept = [](float value) { return std::isnan(value) ? 0.0f : value; };
  std::size_t n_apart = 0;
  for (std::size_t i = 0; i < less.size(); ++i) {
    if (std::isnan(less[i])) continue;
    CHECK(less[i] == kept(a[i]) - kept(b[i]));
    n_apart += less[i] != 0.0f;
  }
  CHECK(n_apart > 0);
}

TEST_CASE("compare: a click goes to a query of the block and a key of the page; budgets differ") {
  CompareRig rig;
  Panel& panel = rig.with({{"metric", "difference"}});
  rig.click(rig.place("compare", 40.5, 160.5));
  CHECK(rig.session().selection().query == 191);
  CHECK(rig.session().selection().key == 32);
  rig.with({{"with", "budget"}, {"other_budget", 8}});
  REQUIRE(panel.figure());
  CHECK_THAT(panel.figure()->panels[0].title, ContainsSubstring("8"));
  rig.with({{"other_budget", 32}});  // twice the same
  CHECK_FALSE(panel.figure());
}

TEST_CASE("compare: the second trace is shown where it is chosen") {
  CompareRig rig;
  REQUIRE(rig.session().second());
  CHECK_THAT(rig.with({{"of_second", true}}).figure().value().caption[0],
             ContainsSubstring("draft.h5"));
}

}  // namespace kvscope::gui::test::compare_panel_test
