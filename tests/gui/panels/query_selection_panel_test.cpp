// The query-selection panel in the app: clicks on points and heads, what the table holds, states.

#include "core/base/json.hpp"
#include "tests/gui/app_rig.hpp"
#include "tests/support/test.hpp"

namespace kvscope::gui::test::query_selection_panel_test {

constexpr const char* kPanel = "query-selection";

void show(Rig& rig, const Json& options = Json::object()) {
  rig.app().panel(kPanel).set_options(options);
  rig.app().show_panel_alone(kPanel);
  rig.settle();
}

TEST_CASE("query-selection panel: a point leads to its token and says what the table says") {
  Rig rig;
  rig.open_pair();
  show(rig);
  const auto figure = rig.app().panel(kPanel).figure();
  REQUIRE(figure);
  const auto& points = std::get<plot::Scatter>(figure->panels[0].marks[0]);
  const auto last = static_cast<std::size_t>(std::ranges::max_element(points.x) - points.x.begin());
  const ImVec2 at = rig.place(kPanel, points.x[last], points.y[last]);
  rig.click(at);
  const Index query = rig.session().selection().query;
  CHECK(static_cast<double>(query) == points.value[last]);
  rig.hover(at);
  CHECK_THAT(rig.app().state()["hover"].dump(), ContainsSubstring(std::to_string(query)));
  CHECK_THAT(rig.app().panel(kPanel).csv().value(),
             ContainsSubstring("\n0,0," + std::to_string(query) + ","));
}

TEST_CASE("query-selection panel: a click on a cell goes to its head") {
  Rig rig;
  rig.open_pair();
  show(rig);
  rig.click(rig.place(kPanel, 7.5, 0.5, 1));
  CHECK(rig.session().selection().layer == 0);
  CHECK(rig.session().selection().q_head == 7);
  rig.settle();
  CHECK_THAT(rig.app().panel(kPanel).figure().value().panels[0].title,
             ContainsSubstring("query head 7"));
}

TEST_CASE("query-selection panel: means, skips and decoded queries all show something") {
  Rig rig;
  Panel& panel = rig.app().panel(kPanel);
  CHECK_FALSE(panel.figure());
  rig.open_pair();
  for (const char* mean : {"prompt", "chunk"}) {
    show(rig, {{"metric", mean}, {"skip", 0}, {"skip_recent", 2}});
    const auto figure = panel.figure();
    REQUIRE(figure);
    CHECK_NOTHROW(plot::check_figure(*figure));
    CHECK_THAT(figure->caption.at(0), ContainsSubstring("verifier.h5"));
  }
  rig.session().select("test", [](Selection& s) { s.query = 195; });  // decoded: in no chunk
  rig.settle();
  CHECK(panel.figure());
  show(rig, {{"metric", "prompt"}, {"skip_recent", 4096}});  // nothing is left
  CHECK_FALSE(panel.figure());
  CHECK_FALSE(panel.is_busy());
  CHECK_THROWS_AS(panel.set_options({{"skip", "page"}}), ConfigError);
}

}  // namespace kvscope::gui::test::query_selection_panel_test
