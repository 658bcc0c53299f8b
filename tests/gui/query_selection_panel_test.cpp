// The query-selection panel in the app: clicks on points and heads, what the table holds, states.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "tests/gui/app_rig.hpp"

namespace kvscope::gui::test::query_selection_panel_test {

using Catch::Matchers::ContainsSubstring;

void show(Rig& rig, const Json& options = Json::object()) {
  rig.app().panel("query-selection").set_options(options);
  rig.app().show_panel_alone("query-selection");
  rig.settle();
}

TEST_CASE("query-selection panel: a click on a point goes to its token", "[query_selection]") {
  Rig rig;
  rig.open_pair();
  show(rig);
  int n_clicked = 0;
  for (const auto& [name, at] : rig.app().panel("query-selection").landmarks()) {
    if (!name.starts_with("query ")) continue;
    rig.click(at.x, at.y);
    CHECK(rig.session().selection().query == std::stoll(name.substr(6)));
    ++n_clicked;
  }
  CHECK(n_clicked == 2);
}

TEST_CASE("query-selection panel: a click on a cell goes to its head", "[query_selection]") {
  Rig rig;
  rig.open_pair();
  show(rig);
  const TraceInfo& info = rig.session().document()->info();
  for (const auto& [name, at] : rig.app().panel("query-selection").landmarks()) {
    const std::string last = "layer " + std::to_string(info.layers.back()) + " head " +
                             std::to_string(info.q_heads.back());
    if (name != last) continue;
    rig.click(at.x, at.y);
  }
  CHECK(rig.session().selection().layer == info.layers.back());
  CHECK(rig.session().selection().q_head == info.q_heads.back());
  rig.settle();
  const auto figure = rig.app().panel("query-selection").figure();
  REQUIRE(figure);
  CHECK(figure->panels.size() == 2);
  CHECK_THAT(figure->panels[0].title, ContainsSubstring("query head 7"));
}

TEST_CASE("query-selection panel: hover says what the table says", "[query_selection]") {
  Rig rig;
  rig.open_pair();
  show(rig);
  Panel& panel = rig.app().panel("query-selection");
  const auto [name, at] = panel.landmarks().front();
  rig.backend().move_mouse(at);
  rig.frame(2);
  const std::string words = rig.app().state()["hover"].dump();
  CHECK_THAT(words, ContainsSubstring(name.substr(6)) && ContainsSubstring("largest weight"));
  const auto csv = panel.csv();
  REQUIRE(csv);
  CHECK_THAT(*csv, ContainsSubstring("\n0,0," + name.substr(6) + ","));
}

TEST_CASE("query-selection panel: spans, skips and decoded queries all show something",
          "[query_selection]") {
  Rig rig;
  Panel& panel = rig.app().panel("query-selection");
  CHECK_FALSE(panel.figure());
  rig.open_pair();
  for (const char* span : {"prompt", "chunk"}) {
    for (const bool skip_sink : {true, false}) {
      show(rig, {{"span", span}, {"skip_sink", skip_sink}, {"skip_recent", 2}});
      const auto figure = panel.figure();
      REQUIRE(figure);
      CHECK_NOTHROW(plot::check_figure(*figure));
      CHECK_THAT(figure->caption.at(0), ContainsSubstring("verifier.h5"));
    }
  }
  rig.session().select("test", [](Selection& s) { s.query = 195; });  // decoded: in no chunk
  rig.settle();
  CHECK(panel.figure());
  show(rig, {{"skip_recent", 4096}});  // nothing is left
  CHECK_FALSE(panel.figure());
  CHECK_FALSE(panel.is_busy());
  CHECK_THROWS_AS(panel.set_options({{"span", "page"}}), ConfigError);
}

}  // namespace kvscope::gui::test::query_selection_panel_test
