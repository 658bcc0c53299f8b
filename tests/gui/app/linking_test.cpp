// What is under the mouse in one panel is marked in all others; a lasso lights up words and rows.
#include <algorithm>
#include <set>

#include "tests/gui/app_rig.hpp"
#include "tests/support/test.hpp"

namespace kvscope::gui::test::linking_test {

using Names = std::vector<std::string>;

std::string drawn_by(Rig& rig, const std::string& panel) {
  // the side bar is no panel of the layout
  const Area area = panel == "traces" ? Area{0.0f, 0.0f, 262.0f, 900.0f} : rig.area(panel);
  return rig.backend().drawn_in({area.x, area.y}, {area.x + area.w, area.y + area.h});
}

/// The panels that look otherwise with the mouse there than with it at a place of no meaning.
Names marked(Rig& rig, const Names& panels, ImVec2 at) {
  rig.hover({1.0f, 1.0f});
  std::vector<std::string> before;
  for (const std::string& panel : panels) before.push_back(drawn_by(rig, panel));
  rig.hover(at);
  Names changed;
  for (std::size_t i = 0; i < panels.size(); ++i) {
    if (drawn_by(rig, panels[i]) != before[i]) changed.push_back(panels[i]);
  }
  return changed;
}

ImVec2 middle_of(const std::string& prefix, const Places& places) {
  const auto at = std::ranges::find_if(
      places, [&](const auto& place) { return place.first.starts_with(prefix); });
  INFO(prefix);
  REQUIRE(at != places.end());
  return at->second;
}

TEST_CASE("linking: a query, a key and a word are marked wherever they are drawn") {
  Rig rig;
  rig.open_pair();
  rig.app().show_layout("overview");
  rig.settle();
  const auto geometry = [&](const char* what) {
    return middle_of(what, rig.app().panel("geometry").landmarks());
  };
  rig.session().select("test", [](Selection& s) { s.query = 100, s.key = 3; });
  rig.settle();
  CHECK(marked(rig, {"attention-map", "query-selection"}, geometry("query ")) ==
        Names{"attention-map", "query-selection"});
  CHECK(marked(rig, {"attention-map"}, geometry("key ")) == Names{"attention-map"});
  CHECK(marked(rig, {"attention-map", "query-selection", "geometry"},
               middle_of("token 9", rig.app().panel("tokens").landmarks())) ==
        Names{"attention-map", "query-selection", "geometry"});
  const ImVec2 pair = rig.mark("selected pair", "attention-map");
  CHECK(marked(rig, {"geometry", "query-selection", "tokens"}, pair) ==
        Names{"geometry", "query-selection", "tokens"});

  rig.app().show_layout("why");
  rig.settle();
  const ImVec2 row = middle_of("row of key", [&] {
    Places rows;
    const auto marks = rig.app().state()["landmarks"];
    for (const auto& [name, at] : marks.items())
      rows.emplace_back(name, ImVec2{at[0].get<float>(), at[1].get<float>()});
    return rows;
  }());
  CHECK(marked(rig, {"attention-map", "why"}, row) == Names{"attention-map", "why"});
  CHECK(marked(rig, {"attention-map"}, {1.0f, 2.0f}).empty());
}

TEST_CASE("linking: heads and methods are marked wherever they are drawn") {
  Rig rig;
  rig.open_pair();
  rig.app().show_layout("budget");
  rig.settle(std::chrono::minutes(2));
  const ImVec2 head = middle_of("head 2 5", rig.app().panel("traces").landmarks());
  CHECK(marked(rig, {"coverage"}, head) == Names{"coverage"});
  CHECK(marked(rig, {"traces"}, rig.place("coverage", 4.5, 1.5)) == Names{"traces"});
  CHECK(marked(rig, {"recall"}, middle_of("quoka@", rig.app().panel("recall").landmarks())) ==
        Names{"recall"});
  rig.app().show_layout("atlas");
  rig.settle(std::chrono::minutes(2));
  CHECK(marked(rig, {"heads"}, rig.mark("head 2 5", "traces")) == Names{"heads"});
}

TEST_CASE("linking: the words of a lasso light up, and its rows and columns in the map") {
  Rig rig;
  rig.open_pair();
  rig.app().show_layout("overview");
  rig.settle();
  const auto drag_around = [&](float share, const char* panel = "geometry") {
    const Area area = rig.area(panel);
    const auto corner = [&](float x, float y) {
      rig.backend().move_mouse(
          {area.x + (0.5f + share * x) * area.w, area.y + (0.5f + share * y) * area.h});
      rig.frame();
    };
    rig.backend().io().KeyAlt = true;
    corner(-1, -1);
    rig.backend().press_button();
    for (const auto& [x, y] : {std::pair(-1, -1), {1, -1}, {1, 1}, {-1, 1}})
      corner(static_cast<float>(x), static_cast<float>(y));
    rig.backend().release_button();
    rig.frame();
    rig.backend().io().KeyAlt = false;
    rig.hover({1.0f, 1.0f});
  };
  const auto drawn = [&](const char* panel) { return drawn_by(rig, panel); };
  rig.hover({1.0f, 1.0f});
  const Selection selected = rig.session().selection();
  for (const bool is_3d : {false, true}) {
    rig.app().panel("geometry").set_options({{"is_3d", is_3d}});
    rig.settle();
    drag_around(0.0f);  // the panel has the focus
    const std::string text = drawn("tokens");
    const std::string map = drawn("attention-map");
    const auto orbit = rig.app().panel("geometry").options();
    drag_around(0.3f);
    const Brush& brush = rig.session().brush();
    CHECK(brush.queries.size() + brush.keys.size() > 20);
    CHECK(std::ranges::is_sorted(brush.queries));
    CHECK(rig.app().panel("geometry").options() == orbit);  // nothing was turned
    CHECK(rig.session().selection() == selected);
    CHECK((drawn("tokens") != text));  // bytes, not to be printed
    CHECK((drawn("attention-map") != map));
    CHECK_HAS(rig.app().state()["flash"].get<std::string>(), "lasso: ");
    rig.tap(GLFW_KEY_ESCAPE);
    CHECK(rig.session().brush().empty());
    rig.frame(2);
    CHECK((drawn("tokens") == text));
    CHECK((drawn("attention-map") == map));
  }
  // of any figure whose points stand for something
  drag_around(0.3f, "query-selection");
  CHECK(rig.session().brush().queries.size() > 20);
  CHECK(rig.session().brush().keys.empty());
  rig.session().set_brush({});
  // its figure is gone when the button goes up
  const Area area = rig.area("geometry");
  rig.backend().io().KeyAlt = true;
  rig.backend().move_mouse({area.x + 0.3f * area.w, area.y + 0.3f * area.h});
  rig.frame();
  rig.backend().press_button();
  rig.frame();
  rig.app().show_layout("budget");
  rig.frame(2);
  rig.backend().release_button();
  rig.backend().io().KeyAlt = false;
  rig.hover({1.0f, 1.0f});
  rig.app().show_layout("overview");
  rig.settle();
  rig.hover({1.0f, 1.0f});
  const std::string geometry = drawn("geometry");
  rig.hover({area.x + 2.0f, area.y + 2.0f});
  CHECK((drawn("geometry") == geometry));
  CHECK(rig.session().brush().empty());
}

}  // namespace kvscope::gui::test::linking_test
