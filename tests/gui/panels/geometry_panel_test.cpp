// The geometry panel in the app: every state, clicks on points, turning, switches, export.

#include "core/base/json.hpp"
#include "notebooks_export/figure_csv.hpp"
#include "tests/gui/app_rig.hpp"
#include "tests/support/test.hpp"

namespace kvscope::gui::test::geometry_panel_test {

struct Landmark {
  std::string what;  // "query" or "key"
  Index pos = 0;
  ImVec2 at{0, 0};
};

std::vector<Landmark> landmarks(Rig& rig) {
  std::vector<Landmark> marks;
  for (const auto& [name, at] : rig.app().panel("geometry").landmarks()) {
    const auto space = name.find(' ');
    marks.push_back({name.substr(0, space), std::stoll(name.substr(space + 1)), at});
  }
  return marks;
}

void show(Rig& rig, const Json& options) {
  rig.app().panel("geometry").set_options(options);
  rig.app().show_panel_alone("geometry");
  rig.settle();
}

TEST_CASE("geometry panel: clicks on points select them, flat and from the side", "[geometry]") {
  Rig rig;
  rig.open_pair();
  for (const bool is_3d : {false, true}) {
    show(rig, {{"is_3d", is_3d}});
    const auto marks = landmarks(rig);
    REQUIRE(marks.size() == 4);
    for (const Landmark& mark : marks) {
      rig.session().select("test", [](Selection& s) { s.query = 150, s.key = 3; });
      rig.settle();
      rig.click(mark.at.x, mark.at.y);
      INFO(mark.what << " " << mark.pos << " at " << mark.at.x << ", " << mark.at.y);
      const Selection& selected = rig.session().selection();
      if (mark.what == "query") {
        CHECK(selected.query == mark.pos);
      } else {
        CHECK(selected.key == mark.pos);
        CHECK(selected.query == std::max<Index>(150, mark.pos));
      }
    }
  }
}

TEST_CASE("geometry panel: hover says what the table says", "[geometry]") {
  Rig rig;
  rig.open_pair();
  show(rig, Json::object());
  const Landmark mark = landmarks(rig).front();
  REQUIRE(mark.what == "query");
  rig.hover(mark.at);
  const Json hover = rig.app().state()["hover"];
  const std::string words = hover.dump();
  CHECK_THAT(words, ContainsSubstring(std::to_string(mark.pos)) && ContainsSubstring("S_q") &&
                        ContainsSubstring("norm"));
  const auto csv = rig.app().panel("geometry").csv();
  REQUIRE(csv);
  CHECK_THAT(*csv, ContainsSubstring("\n0,query,0," + std::to_string(mark.pos) + ","));
}

TEST_CASE("geometry panel: drags turn, the wheel zooms, a double click goes back", "[geometry]") {
  Rig rig;
  rig.open_pair();
  show(rig, {{"is_3d", true}});
  const auto orbit = [&] { return rig.app().panel("geometry").options()["orbit"]; };
  const Json home = orbit();
  const Area area = rig.area("geometry");
  const ImVec2 middle{area.x + 0.4f * area.w, area.y + 0.3f * area.h};
  const Selection before = rig.session().selection();
  rig.hover(middle);
  rig.backend().press_button();
  rig.frame();
  rig.hover({middle.x + 80, middle.y + 30});
  rig.backend().release_button();
  rig.frame(2);
  CHECK(orbit()["yaw"] != home["yaw"]);
  CHECK(orbit()["pitch"] != home["pitch"]);
  CHECK(rig.session().selection() == before);  // a drag is no click
  rig.backend().scroll(2.0f);
  rig.frame(2);
  CHECK(orbit()["zoom"].get<double>() > 1.2);
  rig.click(middle.x, middle.y);
  rig.click(middle.x, middle.y);
  CHECK(orbit() == home);
  // The colour bar keeps a strip of its own, free of points: the wheel there zooms nothing.
  rig.hover({area.x + area.w - 12.0f, area.y + 0.5f * area.h});
  rig.backend().scroll(2.0f);
  rig.frame(2);
  CHECK(orbit() == home);
}

TEST_CASE("geometry panel: as many other keys are kept, and have other colours", "[geometry]") {
  Rig rig;
  rig.open_pair();
  Session& session = rig.session();
  session.select("test", [](Selection& s) { s.query = 150; });
  show(rig, {{"colour", "kept"}});
  const auto with_queries = [&](Index n_queries) {
    session.set_parameters("test", [&](Parameters& p) {
      p.budget = 32;
      p.chunk = 64;
      p.n_queries = n_queries;
    });
    rig.settle();
    const auto figure = rig.app().panel("geometry").figure();
    REQUIRE(figure);
    return figure_csv(*figure);
  };
  const std::string many = with_queries(16);
  CHECK(with_queries(1) != many);
  CHECK(with_queries(16) == many);  // of the cache: there at once
}

TEST_CASE("geometry panel: options of the wrong kind are refused and change nothing",
          "[geometry]") {
  Rig rig;
  Panel& panel = rig.app().panel("geometry");
  const Json before = panel.options();
  CHECK_THROWS_AS(panel.set_options({{"colour", 7}}), ConfigError);
  CHECK_THROWS_AS(panel.set_options({{"is_3d", true}, {"orbit", {{"pitch", 500.0}}}}), ConfigError);
  CHECK(panel.options() == before);
}

}  // namespace kvscope::gui::test::geometry_panel_test
