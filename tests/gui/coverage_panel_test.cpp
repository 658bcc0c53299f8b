// The coverage panel on a null backend: clicks lead to heads.
#include <fmt/format.h>

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/base/json.hpp"
#include "tests/gui/app_rig.hpp"

namespace kvscope::gui::test::coverage_panel_test {

using Catch::Matchers::ContainsSubstring;

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
  ImVec2 place(const std::string& landmark) {
    for (const auto& [name, at] : panel().landmarks()) {
      if (name == landmark) return at;
    }
    FAIL("no landmark " << landmark);
    return {};
  }
  void click_on(const std::string& landmark) {
    const ImVec2 at = place(landmark);
    click(at.x, at.y);
  }
  Json hover(const std::string& landmark) {
    backend().move_mouse(place(landmark));
    frame(2);
    return app().state()["hover"];
  }
};

TEST_CASE("coverage panel: a click on a cell goes to its layer and head, as hovering says") {
  CoverageRig rig("{}");
  const auto figure = rig.panel().figure();
  REQUIRE(figure);
  REQUIRE(figure->panels.size() == 1);
  const Selection start = rig.session().selection();
  CHECK(rig.place("head 7/5").y < rig.place("head 0/5").y);
  rig.click_on("head 7/5");
  const Selection top = rig.session().selection();
  CHECK(top.layer == 7);
  CHECK(top.q_head == 5);
  rig.click_on("head 1/2");
  const Selection bottom = rig.session().selection();
  CHECK(bottom.layer == 1);
  CHECK(bottom.q_head == 2);
  const Json hovered = rig.hover("head 1/2");
  REQUIRE(hovered.contains("attention mass"));
  CHECK(hovered["layer"] == "1");

  // The number under the mouse is the cell's of the CSV.
  const auto& map = std::get<plot::HeatMap>(figure->panels[0].marks[0]);
  const auto cell = static_cast<std::size_t>(bottom.layer * map.n_cols + bottom.q_head);
  CHECK(std::stod(hovered["attention mass"].get<std::string>()) ==
        Catch::Approx(static_cast<double>(map.values[cell])).epsilon(1e-5));
  CHECK_THAT(*rig.panel().csv(), ContainsSubstring(fmt::format("{}", map.values[cell])));
  rig.session().undo();  // quick clicks are one step
  CHECK(rig.session().selection() == start);
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
