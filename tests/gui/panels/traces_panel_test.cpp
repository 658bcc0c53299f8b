// The traces panel in the explorer: choosing, comparing and closing traces, cells to click,
// checking one.
#include <GLFW/glfw3.h>

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "tests/gui/app_rig.hpp"

namespace kvscope::gui::test::traces_panel_test {

constexpr const char* kPanel = "traces";

void click(Rig& rig, const std::string& mark) {
  rig.click(rig.mark(mark, kPanel));
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
  rig.hover(rig.mark("head 1 5", kPanel));
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

TEST_CASE("a trace is verified by the command, whose answer stands in the runs") {
  Rig rig;
  open(rig);
  click(rig, "verify");
  const auto& runs = rig.app().runs().runs();
  REQUIRE(runs.size() == 1);
  CHECK(runs.front().words ==
        std::vector<std::string>{"verify", rig.session().document()->path().string()});
}

}  // namespace kvscope::gui::test::traces_panel_test
