// Panels when another trace is selected, and when theirs is closed.

#include "tests/gui/app_rig.hpp"
#include "tests/support/test.hpp"

namespace kvscope::gui::test::other_trace_test {

constexpr const char* kPanels[] = {"compare",     "coverage",        "geometry",     "heads",
                                   "layer-map",   "query-selection", "quest-bounds", "recall",
                                   "row-sharing", "theorem-b1",      "why"};

/// The panel alone, with its picture of the verifier's trace; the draft's is open as well.
struct PanelRig : Rig {
  explicit PanelRig(const char* panel) {
    app().show_panel_alone(panel);
    open_pair(/*with_draft=*/true);
    session().set_parameters("test", [](Parameters& p) { p.budget = 32; });
    session().select("test", [](Selection& s) { s.trace = 0; });
    settle();
  }
};

TEST_CASE("panels show nothing of the trace before while this one's pictures are made") {
  for (const char* name : kPanels) {
    INFO(name);
    PanelRig rig(name);
    const Panel& panel = rig.app().panel(name);
    REQUIRE(panel.figure());
    rig.session().select("test", [](Selection& s) { s.trace = 1; });
    rig.session().set_second(0);
    rig.frame();
    CHECK(panel.is_busy());
    CHECK_FALSE(panel.figure());
    CHECK_FALSE(panel.csv());
    rig.settle();
    const auto figure = panel.figure();
    REQUIRE(figure);
    std::string words;
    for (const std::string& sentence : figure->caption) words += sentence + "\n";
    CHECK_THAT(words, ContainsSubstring("draft.h5"));
  }
}

TEST_CASE("panels let go of traces that are closed") {
  for (const char* name : kPanels) {
    INFO(name);
    PanelRig rig(name);
    const std::weak_ptr<const Document> verifier = rig.session().documents()[0];
    const std::weak_ptr<const Document> draft = rig.session().documents()[1];
    rig.session().close_trace(0);
    rig.settle();
    CHECK(verifier.expired());
    rig.session().close_trace(0);
    rig.settle();
    CHECK(draft.expired());
  }
}

}  // namespace kvscope::gui::test::other_trace_test
