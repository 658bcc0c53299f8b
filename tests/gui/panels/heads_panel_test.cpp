// The head atlas in the window: a click selects a head, the order and the numbers
// follow the switches.

#include "tests/gui/app_rig.hpp"
#include "tests/support/test.hpp"

namespace kvscope::gui::test::heads_panel_test {

TEST_CASE("heads panel: a click on a head selects it, in both orders") {
  Rig rig({1200, 900});
  rig.open_pair();
  Panel& panel = rig.app().panel("heads");
  rig.app().show_panel_alone("heads");
  rig.settle();
  REQUIRE(panel.figure());
  REQUIRE(panel.landmarks().size() == 64);
  rig.click(rig.mark("layer 5 head 6", "heads"));
  rig.settle();
  CHECK(rig.session().selection().layer == 5);
  CHECK(rig.session().selection().q_head == 6);

  panel.set_options({{"number", "retrieval"}, {"sort", "largest"}});
  rig.settle();
  const auto figure = panel.figure();
  REQUIRE(figure);
  CHECK_THAT(figure->panels[0].x.label, Catch::Matchers::ContainsSubstring("retrieval"));
  const auto first = panel.landmarks().front();  // the largest
  rig.click(first.second);
  rig.settle();
  const Selection& selected = rig.session().selection();
  CHECK("layer " + std::to_string(selected.layer) + " head " + std::to_string(selected.q_head) ==
        first.first);

  panel.set_options({{"number", "lost_mass"}});  // under the selected method: quoka
  rig.settle();
  const auto csv = panel.csv();
  REQUIRE(csv);
  CHECK(std::count(csv->begin(), csv->end(), '\n') == 65);
  const auto lost = panel.figure();
  REQUIRE(lost);
  CHECK_THAT(lost->caption.at(1), Catch::Matchers::ContainsSubstring("lost under QuoKA"));
}

TEST_CASE("heads panel: differences of two methods and of two traces, largest first") {
  Rig rig({1200, 900});
  rig.open_pair(/*with_draft=*/true);
  Panel& panel = rig.app().panel("heads");
  rig.app().show_panel_alone("heads");
  panel.set_options({{"difference", "methods"}, {"sort", "largest"}});
  rig.settle();
  const auto methods = panel.figure();
  REQUIRE(methods);
  CHECK_THAT(methods->panels[0].x.label, Catch::Matchers::ContainsSubstring("difference"));
  const auto first = panel.landmarks().front();
  rig.backend().move_mouse(first.second);
  rig.settle();
  CHECK(rig.app().state()["hover"].contains("difference"));
  // The draft has other layers: its heads are found by their maps.
  panel.set_options({{"difference", "traces"}, {"number", "entropy"}});
  rig.settle();
  for (const std::string& error : rig.app().panel_errors()) UNSCOPED_INFO(error);
  const auto traces = panel.figure();
  REQUIRE(traces);
  CHECK_THAT(traces->caption[0], Catch::Matchers::ContainsSubstring("most alike"));
  rig.frame(2);
  CHECK(rig.app().state()["hover"].contains("compared with"));
  // Without a second trace it says what is missing.
  rig.session().set_second(std::nullopt);
  rig.settle();
  CHECK_FALSE(panel.figure());
  CHECK_FALSE(panel.csv());
  rig.session().select("test", [](Selection& s) { s.other = s.selector; });
  panel.set_options({{"difference", "methods"}});
  rig.settle();
  CHECK_FALSE(panel.figure());
}

}  // namespace kvscope::gui::test::heads_panel_test
