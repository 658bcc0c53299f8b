// The panels of Quest's bounds, Theorem B.1 and the layer map: clicks, failures, switches, numbers.
#include <GLFW/glfw3.h>
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <sstream>

#include "core/base/error.hpp"
#include "gui/model/layer_map_view.hpp"
#include "tests/gui/app_rig.hpp"

namespace kvscope::gui::test {
namespace {

using Catch::Matchers::ContainsSubstring;
using Json = nlohmann::ordered_json;

/// The lines of a panel's CSV that begin so.
std::size_t count_lines(Rig& rig, const std::string& panel, const std::string& beginning) {
  const auto csv = rig.app().panel(panel).csv();
  REQUIRE(csv);
  std::istringstream in(*csv);
  std::size_t n = 0;
  for (std::string line; std::getline(in, line);) n += line.rfind(beginning, 0) == 0;
  return n;
}

/// Clicks over the panel until the selection is another one; false if no place does that.
bool click_until_selected(Rig& rig, const std::string& panel) {
  const Selection before = rig.session().selection();
  for (float y = 0.2f; y < 0.85f; y += 0.02f) {
    for (float x = 0.08f; x < 0.9f; x += 0.02f) {
      rig.click_panel(panel, x, y);
      rig.settle();
      if (rig.session().selection() != before) return true;
    }
  }
  return false;
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
  CHECK_THAT(figure->caption.at(1), ContainsSubstring("0 bounds below"));
  REQUIRE(click_until_selected(rig, "quest-bounds"));
  const Selection& selected = rig.session().selection();
  REQUIRE(selected.key);
  CHECK(*selected.key % rig.session().parameters().page_size == 0);
  CHECK(selected.query >= 192);  // steps are the decoded positions
  CHECK(count_lines(rig, "quest-bounds",
                    fmt::format("{},{},{},", selected.query, *selected.key / 16, *selected.key)) ==
        1);
  // The selected page.
  CHECK(rig.app().panel("quest-bounds").figure()->panels[0].marks.size() >
        figure->panels[0].marks.size());
}

TEST_CASE("quest panel: along the context a click chooses the page at that position") {
  Rig rig({1200, 700});
  rig.open_pair();
  show(rig, "quest-bounds", {{"picture", "pages"}, {"program", "kernel"}});
  const Index query = rig.session().selection().query;
  rig.click_panel("quest-bounds", 0.5f, 0.5f);
  rig.settle();
  REQUIRE(rig.session().selection().key);
  const Index middle = *rig.session().selection().key;
  CHECK(middle % 16 == 0);
  CHECK(middle > query / 4);
  CHECK(middle < query);
  CHECK(rig.session().selection().query == query);
  rig.click_panel("quest-bounds", 0.9f, 0.5f);
  rig.settle();
  CHECK(*rig.session().selection().key > middle);
  CHECK(count_lines(rig, "quest-bounds", fmt::format("{},", query)) == 12);
}

TEST_CASE("quest panel: no decoded step is a sentence, and another switch is the way out") {
  Rig rig({1024, 768});
  rig.open(embedded_trace(/*draft=*/false, 96, 0));
  show(rig, "quest-bounds", {{"steps", "decode"}});
  rig.frame(3);
  CHECK_FALSE(rig.app().panel("quest-bounds").is_busy());
  CHECK_FALSE(rig.app().panel("quest-bounds").figure());
  CHECK_FALSE(rig.app().panel("quest-bounds").csv());
  show(rig, "quest-bounds", {{"steps", "prompt"}});
  CHECK(rig.app().panel("quest-bounds").figure());
}

TEST_CASE("quest panel: a slider's new value is computed and the last picture stays meanwhile") {
  Rig rig({1024, 768});
  rig.open_pair();
  show(rig, "quest-bounds");
  rig.session().set_parameters("test", [](Parameters& p) { p.page_size = 32; });
  rig.frame();
  CHECK(rig.app().panel("quest-bounds").figure());
  rig.settle();
  CHECK_THAT(rig.app().panel("quest-bounds").figure()->caption.at(0),
             ContainsSubstring("pages of 32 keys"));
}

TEST_CASE("theorem panel: a click on a point goes to its query and its k*") {
  Rig rig({1200, 700});
  rig.open_pair();
  show(rig, "theorem-b1", {{"picture", "one"}, {"bound", "jensen"}, {"star", "first"}});
  REQUIRE(rig.app().panel("theorem-b1").figure());
  REQUIRE(click_until_selected(rig, "theorem-b1"));
  const Selection& selected = rig.session().selection();
  REQUIRE(selected.key);
  CHECK(*selected.key == 0);  // the first visible key
  CHECK(count_lines(rig, "theorem-b1", fmt::format("{},0,", selected.query)) == 1);
}

TEST_CASE("theorem panel: every picture, colour and key is drawn") {
  Rig rig({1024, 768});
  rig.open_pair();
  for (const char* picture : {"one", "all", "main_text"}) {
    for (const char* star : {"argmax", "rank", "current", "random"}) {
      show(rig, "theorem-b1", {{"picture", picture}, {"colour", "position"}, {"star", star}});
      const auto figure = rig.app().panel("theorem-b1").figure();
      REQUIRE(figure);
      CHECK(figure->panels.size() == (picture == std::string("all")         ? 4
                                      : picture == std::string("main_text") ? 2
                                                                            : 1));
    }
  }
  CHECK(rig.app().panel("theorem-b1").options()["star"] == "random");
  CHECK_THROWS_AS(rig.app().panel("theorem-b1").set_options({{"star", 3}}), ConfigError);
  CHECK_THROWS_AS(rig.app().panel("theorem-b1").set_options({{"rank", 0}}), ConfigError);
}

TEST_CASE("layer map panel: a click selects the verifier layer of its column") {
  Rig rig({1200, 700});
  rig.open_pair(/*with_draft=*/true);
  show(rig, "layer-map");
  const auto figure = rig.app().panel("layer-map").figure();
  REQUIRE(figure);
  CHECK_THAT(figure->caption.back(), ContainsSubstring("Verifier: verifier.h5; draft: draft.h5"));
  std::vector<Index> seen;
  for (float x = 0.08f; x < 0.9f; x += 0.04f) {
    rig.click_panel("layer-map", x, 0.5f);
    seen.push_back(rig.session().selection().layer);
  }
  CHECK(std::is_sorted(seen.begin(), seen.end()));
  CHECK(seen.back() == 7);
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  CHECK(seen.size() == 8);
  CHECK(count_lines(rig, "layer-map", "3,7,") == 1);
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
  CHECK_THAT(rig.app().panel("layer-map").figure()->caption.back(),
             ContainsSubstring("Verifier: draft.h5; draft: verifier.h5"));
  CHECK(count_lines(rig, "layer-map", "7,3,") == 1);
  swap_traces(rig.session());
  rig.settle();
  CHECK(rig.session().document()->name() == "verifier.h5");

  rig.open(embedded_trace(/*draft=*/true, 96, 0));
  const auto others = other_traces(rig.session());
  REQUIRE(others.size() == 2);
  rig.session().set_second(others.back());
  rig.settle();
  CHECK_FALSE(rig.app().panel("layer-map").figure());
  show(rig, "layer-map", {{"token_match", "common_prefix"}});
  REQUIRE(rig.app().panel("layer-map").figure());
  CHECK_THAT(rig.app().panel("layer-map").figure()->caption.back(), ContainsSubstring("96 tokens"));
}

}  // namespace
}  // namespace kvscope::gui::test
