// The coverage panel on a null backend: clicks lead to heads.
#include <fmt/format.h>

#include "core/base/json.hpp"
#include "tests/gui/app_rig.hpp"
#include "tests/support/test.hpp"

namespace kvscope::gui::test::coverage_panel_test {

struct CoverageRig : Rig {
  explicit CoverageRig(const char* options) {
    open_pair();
    session().set_parameters("test", [](Parameters& p) {
      p.budget = 32;
      p.chunk = 32;
    });
    panel().set_options(Json::parse(options));
    app().show_panel_alone("coverage");
    settle();
  }
  Panel& panel() { return app().panel("coverage"); }
  ImVec2 place(int layer, int head) { return *panel().place(0, head + 0.5, layer + 0.5); }
  void click_on(int layer, int head) { click(place(layer, head)); }
  Json hover(int layer, int head) {
    Rig::hover(place(layer, head));
    return app().state()["hover"];
  }
};

TEST_CASE("coverage panel: a click on a cell goes to its layer and head, as hovering says") {
  CoverageRig rig("{}");
  const auto figure = rig.panel().figure();
  REQUIRE(figure);
  REQUIRE(figure->panels.size() == 1);
  const Selection start = rig.session().selection();
  CHECK(rig.place(7, 5).y < rig.place(0, 5).y);
  rig.click_on(7, 5);
  const Selection top = rig.session().selection();
  CHECK(top.layer == 7);
  CHECK(top.q_head == 5);
  rig.click_on(1, 2);
  const Selection bottom = rig.session().selection();
  CHECK(bottom.layer == 1);
  CHECK(bottom.q_head == 2);
  const Json hovered = rig.hover(1, 2);
  REQUIRE(hovered.contains("value"));
  CHECK(hovered["cell"] == "layer 1, query head 2");

  // The number under the mouse is the cell's of the CSV.
  const auto& map = std::get<plot::HeatMap>(figure->panels[0].marks[0]);
  const auto cell = static_cast<std::size_t>(bottom.layer * map.n_cols + bottom.q_head);
  CHECK(std::stod(hovered["value"].get<std::string>()) ==
        Catch::Approx(static_cast<double>(map.values[cell])).epsilon(1e-3));
  CHECK_THAT(*rig.panel().csv(), ContainsSubstring(fmt::format("{}", map.values[cell])));
  rig.session().undo();  // quick clicks are one step
  CHECK(rig.session().selection() == start);
}

TEST_CASE("coverage panel: the title is of the shown numbers, not of those that are computed") {
  CoverageRig rig("{}");
  const auto shown = [&] { return rig.panel().figure()->panels[0]; };
  const auto values = [&] { return std::get<plot::HeatMap>(shown().marks[0]).values; };
  const auto before = values();
  CHECK_THAT(shown().title, ContainsSubstring("=32, prefill"));
  rig.session().set_parameters("test", [](Parameters& p) { p.budget = 64; });
  rig.panel().set_options({{"lock-colours", true}});  // which draws the picture anew
  for (int i = 0; i < 3; ++i) {
    rig.frame();
    if (!rig.panel().figure()) continue;
    const bool is_before = values() == before;
    CHECK_THAT(shown().title, ContainsSubstring(is_before ? "=32" : "=64"));
  }
  rig.settle();
  CHECK(values() != before);
  CHECK_THAT(shown().title, ContainsSubstring("=64, prefill"));
}

TEST_CASE("coverage panel: a method that does not answer here is named") {
  CoverageRig rig("{}");
  rig.session().select("test", [](Selection& s) { s.selector = "specattn"; });
  rig.settle();
  CHECK_FALSE(rig.panel().figure());
  rig.session().select("test", [](Selection& s) { s.selector = "quest"; });
  rig.settle();
  CHECK(rig.panel().figure());
}

}  // namespace kvscope::gui::test::coverage_panel_test
