// The panels of Quest's bounds and the layer map: clicks, failures, switches; and the options of
// all analysis panels.

#include <GLFW/glfw3.h>

#include <cstddef>
#include <sstream>

#include "analysis/base/read_table.hpp"
#include "core/base/json.hpp"
#include "tests/gui/app_rig.hpp"
#include "tests/support/test.hpp"

namespace kvscope::gui::test::bounds_panels_test {

/// The lines of a panel's CSV that begin so.
std::size_t count_lines(Rig& rig, const std::string& panel, const std::string& beginning) {
  const auto csv = rig.app().panel(panel).csv();
  REQUIRE(csv);
  std::istringstream in(*csv);
  std::size_t n = 0;
  for (std::string line; std::getline(in, line);) n += line.rfind(beginning, 0) == 0;
  return n;
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
  const auto n_rows = static_cast<std::size_t>(csv.n_rows());
  std::vector<ImVec2> places;  // before the click, which changes the lines below the figure
  for (std::size_t row = 0; row < n_rows; ++row) {
    places.push_back(
        rig.place("quest-bounds", csv.numbers("true_max")[row], csv.numbers("bound")[row]));
  }
  const ImVec2 at = places.at(0);
  CHECK(csv.numbers("query")[0] >= 192);  // steps are the decoded positions
  REQUIRE(rig.session().selection().query < 192);
  rig.click(at.x, at.y);
  rig.settle();
  const Selection selection = rig.session().selection();
  std::size_t n_selected = 0;  // points there of what is selected; a click is at whole pixels
  for (std::size_t row = 0; row < n_rows; ++row) {
    if (static_cast<Index>(csv.numbers("query")[row]) != selection.query) continue;
    if (static_cast<Index>(csv.numbers("key")[row]) != selection.key) continue;
    n_selected += std::hypot(places[row].x - at.x, places[row].y - at.y) < 3.0f;
  }
  CHECK(n_selected == 1);
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
    rig.click(rig.mark(std::string("options of ") + name));
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
