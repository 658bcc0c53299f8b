// The panels of Quest's bounds, Theorem B.1 and the layer map: clicks, failures, switches, numbers.

#include <GLFW/glfw3.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstddef>
#include <sstream>

#include "analysis/base/read_table.hpp"
#include "core/base/json.hpp"
#include "tests/gui/app_rig.hpp"

namespace kvscope::gui::test::bounds_panels_test {

using Catch::Matchers::ContainsSubstring;

/// The lines of a panel's CSV that begin so.
std::size_t count_lines(Rig& rig, const std::string& panel, const std::string& beginning) {
  const auto csv = rig.app().panel(panel).csv();
  REQUIRE(csv);
  std::istringstream in(*csv);
  std::size_t n = 0;
  for (std::string line; std::getline(in, line);) n += line.rfind(beginning, 0) == 0;
  return n;
}

/// A point of a cloud: its data coordinates, and the selection that a click on it makes.
struct CloudPoint {
  double x = 0.0;
  double y = 0.0;
  Index query = 0;
  Index key = 0;
};

/// How far from a point a click still selects it, in pixels.
constexpr float kReach = 6.0f;

/// By the distance of every point to `at`, in pixels: the nearest, and how far the next one is.
struct Nearest {
  const CloudPoint* point = nullptr;
  float distance = 1e9f;
  float second = 1e9f;
};
Nearest nearest_to(Rig& rig, const std::string& panel, const std::vector<CloudPoint>& points,
                   ImVec2 at) {
  Nearest nearest;
  for (const CloudPoint& point : points) {
    const ImVec2 there = rig.place(panel, point.x, point.y);
    const float distance = std::hypot(there.x - at.x, there.y - at.y);
    nearest.second = std::min(nearest.second, std::max(distance, nearest.distance));
    if (distance < nearest.distance) nearest.point = &point, nearest.distance = distance;
  }
  return nearest;
}

/// The point whose nearest neighbour is farthest away.
const CloudPoint& loneliest(Rig& rig, const std::string& panel,
                            const std::vector<CloudPoint>& points) {
  const auto room = [&](const CloudPoint& point) {
    return nearest_to(rig, panel, points, rig.place(panel, point.x, point.y)).second;
  };
  REQUIRE_FALSE(points.empty());
  return *std::max_element(
      points.begin(), points.end(),
      [&](const CloudPoint& a, const CloudPoint& b) { return room(a) < room(b); });
}

/// Clicks at whole pixels around a point, to beyond its reach: each selects the nearest point of
/// the cloud if that is within reach, and nothing otherwise.
void check_hit_area(Rig& rig, const std::string& panel, const std::vector<CloudPoint>& points,
                    const CloudPoint& point) {
  const Selection before = rig.session().selection();
  REQUIRE(!(before.query == point.query && before.key == point.key));
  int n_inside = 0;
  int n_outside = 0;
  for (const ImVec2 step : {ImVec2{1, 0}, ImVec2{-1, 0}, ImVec2{0, 1}, ImVec2{0, -1}, ImVec2{1, 1},
                            ImVec2{-1, -1}, ImVec2{1, -1}, ImVec2{-1, 1}}) {
    for (float k = 0.0f; k <= kReach + 2.0f; ++k) {
      // The lines below the figure change with the selection, and so does its height.
      rig.session().select("test", [&](Selection& s) { s = before; });
      rig.settle();
      const ImVec2 at = rig.place(panel, point.x, point.y);
      const ImVec2 cursor{std::floor(at.x) + k * step.x, std::floor(at.y) + k * step.y};
      const Nearest nearest = nearest_to(rig, panel, points, cursor);
      constexpr float kRounding = 0.02f;
      if (std::abs(nearest.distance - kReach) < kRounding) continue;
      if (nearest.second - nearest.distance < kRounding) continue;
      rig.click(cursor.x, cursor.y);
      rig.settle();
      const Selection& after = rig.session().selection();
      INFO(nearest.distance << " pixels from the point of query " << nearest.point->query
                            << ", key " << nearest.point->key);
      if (nearest.distance < kReach) {
        CHECK(after.query == nearest.point->query);
        CHECK(after.key == nearest.point->key);
        n_inside += nearest.point == &point;
      } else {
        CHECK(after == before);
        ++n_outside;
      }
    }
  }
  CHECK(n_inside >= 24);
  CHECK(n_outside >= 4);
}

void show(Rig& rig, const std::string& panel, const Json& options = Json::object()) {
  rig.app().panel(panel).set_options(options);
  rig.app().show_panel_alone(panel);
  rig.settle();
}

TEST_CASE("quest panel: a click on a point goes to its query and the first key of its page") {
  Rig rig({1200, 700});
  rig.open_pair();
  show(rig, "quest-bounds");
  const auto figure = rig.app().panel("quest-bounds").figure();
  REQUIRE(figure);
  CHECK_THAT(figure->caption.at(0), ContainsSubstring("verifier.h5, layer 0, query head 0"));
  CHECK_THAT(figure->caption.at(1), ContainsSubstring(", 0 below the true maximum"));
  const Table csv = table_from_csv(*rig.app().panel("quest-bounds").csv(), "pages.csv");
  std::vector<CloudPoint> points;
  for (std::size_t row = 0; row < static_cast<std::size_t>(csv.n_rows()); ++row) {
    points.push_back({csv.numbers("true_max")[row], csv.numbers("bound")[row],
                      static_cast<Index>(csv.numbers("query")[row]),
                      static_cast<Index>(csv.numbers("key")[row])});
  }
  const CloudPoint& point = loneliest(rig, "quest-bounds", points);
  CHECK(point.query >= 192);  // steps are the decoded positions
  check_hit_area(rig, "quest-bounds", points, point);
}

TEST_CASE("quest panel: no decoded step is a sentence, and another switch is the way out") {
  Rig rig({1024, 768});
  rig.open(embedded_trace(/*draft=*/false, 96, 0));
  show(rig, "quest-bounds", {{"step_source", "decode"}});
  rig.frame(3);
  CHECK_FALSE(rig.app().panel("quest-bounds").is_busy());
  CHECK_FALSE(rig.app().panel("quest-bounds").figure());
  CHECK_FALSE(rig.app().panel("quest-bounds").csv());
  show(rig, "quest-bounds", {{"step_source", "prompt"}});
  CHECK(rig.app().panel("quest-bounds").figure());
}

TEST_CASE("layer map panel: a click selects the verifier layer of its column") {
  Rig rig({1200, 700});
  rig.open_pair(/*with_draft=*/true);
  show(rig, "layer-map");
  const auto figure = rig.app().panel("layer-map").figure();
  REQUIRE(figure);
  CHECK_THAT(figure->caption.front(), ContainsSubstring("Verifier: verifier.h5; draft: draft.h5"));
  for (Index layer = 0; layer < 8; ++layer) {
    rig.session().select("test", [&](Selection& s) { s.layer = (layer + 4) % 8; });
    rig.settle();
    const Index other = rig.session().selection().layer;
    const double draft = 1.5;  // the middle of a draft layer's row
    const ImVec2 left = rig.place("layer-map", static_cast<double>(layer), draft);
    const ImVec2 right = rig.place("layer-map", static_cast<double>(layer + 1), draft);
    INFO("verifier layer " << layer);
    rig.click(std::ceil(left.x), left.y);
    CHECK(rig.session().selection().layer == layer);
    rig.click(std::floor(left.x) - 1.0f, left.y);
    CHECK(rig.session().selection().layer == (layer == 0 ? 0 : layer - 1));  // no cell left of 0
    rig.session().select("test", [&](Selection& s) { s.layer = other; });
    rig.click(std::ceil(right.x) - 1.0f, right.y);
    CHECK(rig.session().selection().layer == layer);
    rig.click(std::ceil(right.x), right.y);
    CHECK(rig.session().selection().layer == (layer == 7 ? 7 : layer + 1));
  }
  CHECK(count_lines(rig, "layer-map", "3,7,") == 1);
}

void swap_traces(Session& session) {
  const Index verifier = session.selection().trace;
  const Index draft = session.second_index().value();
  session.select("swap traces", [&](Selection& s) { s.trace = draft; });
  session.set_second(verifier);
}

TEST_CASE("layer map panel: one trace, two that are exchanged, two of different length") {
  Rig rig({1024, 768});
  rig.open_pair();
  show(rig, "layer-map");
  CHECK_FALSE(rig.app().panel("layer-map").figure());
  rig.open(embedded_trace(/*draft=*/true));
  rig.settle();
  REQUIRE(rig.app().panel("layer-map").figure());
  swap_traces(rig.session());
  rig.settle();
  REQUIRE(rig.session().document()->name() == "draft.h5");
  CHECK_THAT(rig.app().panel("layer-map").figure()->caption.front(),
             ContainsSubstring("Verifier: draft.h5; draft: verifier.h5"));
  CHECK(count_lines(rig, "layer-map", "7,3,") == 1);
  swap_traces(rig.session());
  rig.settle();
  CHECK(rig.session().document()->name() == "verifier.h5");

  rig.open(embedded_trace(/*draft=*/true, 96, 0));
  REQUIRE(rig.session().documents().size() == 3);
  rig.session().select("test", [](Selection& s) { s.trace = 0; });
  rig.session().set_second(2);
  rig.settle();
  CHECK_FALSE(rig.app().panel("layer-map").figure());
  show(rig, "layer-map", {{"token_match", "common_prefix"}});
  CHECK(rig.app().panel("layer-map").figure());
}

TEST_CASE("analysis panels: their options open; sessions and lists hold them, not the session's") {
  Rig rig({1200, 700});
  rig.open_pair(/*with_draft=*/true);
  const std::pair<const char*, const char*> kPanels[] = {{"quest-bounds", "steps"},
                                                         {"theorem-b1", "rank"},
                                                         {"layer-map", "min-visible"},
                                                         {"query-selection", "queries"},
                                                         {"compare", "other-budget"}};
  for (const auto& [name, field] : kPanels) {
    INFO(name);
    show(rig, name);
    const auto at = rig.app().state()["landmarks"][std::string("options of ") + name];
    REQUIRE(at.is_array());
    rig.click(at[0].get<float>(), at[1].get<float>());
    rig.frame(3);
    CHECK(rig.app().state()["landmarks"].contains(field));
    rig.tap(GLFW_KEY_ESCAPE);
    for (const char* shared : {"page_size", "dense_layers", "chunk", "methods"})
      CHECK_FALSE(rig.app().panel(name).options().contains(shared));
  }
  for (const PanelChoice& choice : rig.app().panel("layer-map").choices())
    CHECK_FALSE(choice.words.starts_with("of-second"));
  show(rig, "quest-bounds", {{"picture", "pages"}, {"steps", "automatic"}, {"program", "kernel"}});
  CHECK(rig.app().panel("quest-bounds").options()["metric"] == "kernel");
  CHECK(rig.app().panel("quest-bounds").figure());
}

TEST_CASE(
    "compare: methods without budgets, and the second trace at a decoded query of the first") {
  Rig rig;
  rig.open_pair(/*with_draft=*/true);
  rig.session().select("test", [](Selection& s) {
    s.selector = "longformer";
    s.other = "full";
  });
  show(rig, "compare");
  CHECK(rig.app().panel("compare").figure());
  rig.session().select("test", [](Selection& s) { s.query = 195; });
  show(rig, "compare", {{"of_second", true}});
  CHECK((rig.app().panel("compare").figure() || !rig.app().panel_errors().empty()));
}

}  // namespace kvscope::gui::test::bounds_panels_test
