// The traces panel in the explorer: choosing, comparing and closing traces, cells to click, data
// that is not finite.
#include <GLFW/glfw3.h>

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstring>
#include <fstream>

#include "analysis/base/read_table.hpp"
#include "tests/gui/app_rig.hpp"
#include "traces/reader.hpp"

namespace kvscope::gui::test::traces_panel_test {

using Catch::Matchers::ContainsSubstring;

constexpr const char* kPanel = "traces";

ImVec2 place_of(Rig& rig, const std::string& wanted) {
  for (const auto& [name, place] : rig.app().panel(kPanel).landmarks()) {
    if (name == wanted) return place;
  }
  FAIL(wanted << " is not there");
  return {};
}

void click(Rig& rig, const std::string& mark) {
  const ImVec2 at = place_of(rig, mark);
  rig.click(at.x, at.y);
  rig.settle();
}

/// The side bar beside a panel that is quickly done.
void open(Rig& rig, bool with_draft = false) {
  rig.app().show_panel_alone("tokens");
  rig.open_pair(with_draft);
}

std::string model(Rig& rig) {
  return rig.session().document()->info().model_name;
}

TEST_CASE("a cell of the grid selects its layer and head, and tells what it is") {
  Rig rig;
  open(rig);
  click(rig, "head 2 6");
  CHECK(rig.session().selection().layer == 2);
  CHECK(rig.session().selection().q_head == 6);
  rig.tap(GLFW_KEY_Z, /*ctrl=*/true);
  CHECK(rig.session().selection().layer == 0);
  rig.backend().move_mouse(place_of(rig, "head 1 5"));
  rig.frame(2);
  const auto state = rig.app().state();
  CHECK(state["hover"]["layer"] == "1: full attention, dense MLP");
  CHECK(state["hover"]["query head"] == "5");
  CHECK(state["hover"]["KV head"] == "1");
}

TEST_CASE("traces are chosen, made the second one, exchanged and closed") {
  Rig rig;
  open(rig, /*with_draft=*/true);
  CHECK(model(rig) == "verifier");
  REQUIRE(rig.session().second());  // over the same tokens
  click(rig, "second 1");
  CHECK_FALSE(rig.session().second());
  click(rig, "second 1");
  REQUIRE(rig.session().second());
  click(rig, "trace 1");
  CHECK(model(rig) == "draft");
  REQUIRE(rig.session().second());
  CHECK(rig.session().second()->info().model_name == "verifier");
  click(rig, "close 0");
  CHECK(rig.session().documents().size() == 1);
  CHECK(model(rig) == "draft");
  click(rig, "close 0");
  CHECK(rig.session().documents().empty());
  CHECK_FALSE(rig.app().panel(kPanel).csv());
}

TEST_CASE("norms of the selected head as a figure, of all heads that were looked at as a table") {
  Rig rig;
  open(rig);
  click(rig, "head 3 1");
  const auto figure = rig.app().panel(kPanel).figure();
  REQUIRE(figure);
  CHECK_NOTHROW(plot::check_figure(*figure));
  CHECK_THAT(figure->caption.at(0), ContainsSubstring("layer 3"));
  const auto csv = rig.app().panel(kPanel).csv();
  REQUIRE(csv);
  const Table table = table_from_csv(*csv, "heads");
  CHECK(table.n_rows() == 64);
  CHECK(table.numbers("q_norm_mean")[3 * 8 + 1] > 0.0);
  CHECK(std::isnan(table.numbers("q_norm_mean")[5 * 8]));
}

TEST_CASE("a number that is not finite is found when its layer is looked at") {
  const testing::TempDir folder;
  const auto path = folder.path() / "nan.h5";
  {
    // The bytes of one key's first numbers, exchanged for a NaN.
    const auto sound = embedded_trace(/*draft=*/false);
    const TraceFile file = TraceFile::open(sound);
    const Tensor<float> key = file.read_k(1, 0, {37, 38});
    std::string bytes = testing::read_file(sound);
    const std::size_t at =
        bytes.find(std::string(reinterpret_cast<const char*>(key.data()), 4 * sizeof(float)));
    REQUIRE(at != std::string::npos);
    const float nan = std::nanf("");
    std::memcpy(bytes.data() + at, &nan, sizeof nan);
    folder.write("nan.h5", bytes);
  }
  Rig rig;
  rig.app().show_panel_alone("tokens");
  rig.open(path);
  CHECK(rig.app().state()["notices"].empty());
  click(rig, "head 1 2");
  rig.backend().move_mouse(place_of(rig, "head 1 2"));
  rig.frame(2);
  CHECK(rig.app().state()["hover"]["data"] == "k holds NaN");
  rig.backend().move_mouse(place_of(rig, "head 1 7"));
  rig.frame(2);
  CHECK_FALSE(rig.app().state()["hover"].contains("data"));  // the other KV head
}

}  // namespace kvscope::gui::test::traces_panel_test
