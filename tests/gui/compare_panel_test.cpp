// The compare panel in every state: each pair of sides, maps and one query, clicks, CSV.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "analysis/base/read_table.hpp"
#include "gui/model/compare/compare_sides.hpp"
#include "tests/gui/app_rig.hpp"

namespace kvscope::gui::test::compare_panel_test {

using Catch::Matchers::ContainsSubstring;

Panel& show(Rig& rig, const char* what, const char* view) {
  Panel& panel = rig.app().panel("compare");
  panel.set_options({{"what", what}, {"show", view}});
  rig.app().show_panel_alone("compare");
  rig.settle();
  return panel;
}

TEST_CASE("compare: nothing open, one trace only, two methods that cannot be compared") {
  Rig rig;
  CHECK_FALSE(show(rig, "methods", "maps").figure());
  CHECK_FALSE(show(rig, "traces", "query").csv());
  rig.open_pair();
  CHECK_FALSE(show(rig, "traces", "query").figure());
  rig.session().select("test", [](Selection& s) { s.other = "specattn"; });
  CHECK_FALSE(show(rig, "methods", "maps").figure());
  CHECK(rig.session().notices().empty());
}

TEST_CASE("compare: every pair of sides as maps and for one query, at every size") {
  for (const ImVec2 size : {ImVec2{1600, 900}, ImVec2{1024, 768}, ImVec2{420, 320}}) {
    Rig rig(size);
    rig.open_pair(/*with_draft=*/true);
    rig.session().set_parameters("test", [](Parameters& p) {
      p.budget = 32;
      p.chunk = 64;
    });
    for (const char* what : {"methods", "budgets", "traces"}) {
      for (const char* view : {"maps", "query"}) {
        INFO(what << " " << view << " " << size.x);
        Panel& panel = show(rig, what, view);
        const auto figure = panel.figure();
        REQUIRE(figure);
        CHECK_NOTHROW(plot::check_figure(*figure));
        CHECK(figure->panels.size() == (std::string(view) == "maps" ? 3 : 2));
        CHECK_FALSE(figure->caption.empty());
        const auto csv = panel.csv();
        REQUIRE(csv);
        CHECK(table_from_csv(*csv, "panel.csv").n_rows() > 10);
        CHECK_FALSE(panel.is_busy());
      }
    }
    CHECK(rig.session().notices().empty());
  }
}

TEST_CASE("compare: a click on a map goes to its query and key, one on a row to its key") {
  Rig rig;
  rig.open_pair();
  rig.session().set_parameters("test", [](Parameters& p) {
    p.budget = 16;
    p.chunk = 64;
  });
  show(rig, "methods", "maps");
  const Selection before = rig.session().selection();
  const ImVec2 at = rig.place("compare", 40.5, 160.5);
  rig.click(at.x, at.y);
  rig.settle();
  CHECK(rig.session().selection().query == 160);
  CHECK(rig.session().selection().key == 40);
  rig.session().undo();
  CHECK(rig.session().selection() == before);

  Panel& panel = show(rig, "methods", "query");
  const Table csv = table_from_csv(*panel.csv(), "keys.csv");
  const std::span<const double> attention = csv.numbers("attention");
  const auto heaviest = std::max_element(attention.begin(), attention.end());
  const double key = csv.numbers("key")[heaviest - attention.begin()];
  const ImVec2 point = rig.place("compare", key, *heaviest);
  rig.click(point.x, point.y);
  rig.settle();
  CHECK(rig.session().selection().key == static_cast<Index>(key));
  CHECK(rig.session().selection().query == before.query);
}

TEST_CASE("compare: the budget of B and the selected head decide what is shown") {
  Rig rig;
  rig.open_pair();
  rig.session().set_parameters("test", [](Parameters& p) {
    p.budget = 32;
    p.chunk = 64;
  });
  Panel& panel = rig.app().panel("compare");
  panel.set_options({{"what", "budgets"}, {"show", "maps"}, {"other_budget", 8}});
  rig.app().show_panel_alone("compare");
  rig.settle();
  const std::string first = *panel.csv();
  CHECK_THAT(panel.figure()->caption[0], ContainsSubstring("tokens=8"));
  panel.set_options({{"other_budget", 32}});
  rig.settle();
  CHECK(*panel.csv() != first);
  CHECK_THAT(panel.figure()->caption[1], ContainsSubstring("A − B +0.0000 [+0.0000, +0.0000]"));
  rig.session().step_layer(1);
  rig.settle();
  CHECK_THAT(panel.figure()->caption[0], ContainsSubstring("layer 1"));
}

}  // namespace kvscope::gui::test::compare_panel_test
