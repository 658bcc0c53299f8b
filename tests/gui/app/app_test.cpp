// The app without a window: start, open, layouts, sessions, and three frames of every panel in
// every state.
#include "gui/app/app.hpp"

#include <GLFW/glfw3.h>

#include "tests/gui/app_rig.hpp"
#include "tests/support/test.hpp"

namespace kvscope::gui::test::app_test {

TEST_CASE("every panel draws three frames alone: nothing open, a trace, two traces") {
  Rig rig;
  const auto draw_all = [&] {
    for (const std::string& name : rig.app().panel_names()) {
      INFO(name);
      rig.app().show_panel_alone(name);
      rig.settle();
      CHECK(rig.backend().n_vertices() > 0);
      CHECK(rig.session().notices().empty());
    }
  };
  draw_all();
  rig.open_pair();
  CHECK(rig.session().selection().query == 191);  // the end of the prompt
  CHECK_THAT(rig.app().title(), ContainsSubstring("verifier.h5"));
  draw_all();
  rig.open(embedded_trace(/*draft=*/true));
  CHECK(rig.session().second() != nullptr);
  draw_all();
  rig.session().close_trace(0);
  rig.session().close_trace(0);
  draw_all();
}

TEST_CASE("a session is applied to another trace as far as it goes") {
  const testing::TempDir folder;
  const auto file = folder.path() / "s.json";
  {
    Rig rig;
    rig.open_pair();
    rig.session().select("test", [](Selection& s) {
      s.layer = 5;
      s.query = 100;
    });
    rig.app().save_session(file);
  }
  Rig other;
  other.open(embedded_trace(/*draft=*/true));
  other.app().load_session(file);
  other.settle();
  const TraceInfo& info = other.session().document()->info();
  CHECK(other.session().documents().size() == 1);
  CHECK(other.session().selection().layer == std::min<Index>(5, info.layers.back()));
  CHECK(other.session().selection().query == 100);
}

TEST_CASE("what is no session is refused with its name, and changes nothing") {
  const testing::TempDir folder;
  Rig rig;
  rig.open_pair();
  const auto before = rig.session().to_json(folder.path());
  CHECK_THROWS_AS(rig.app().load_session(folder.path() / "missing.json"), IoError);
  CHECK_THROWS_AS(rig.app().load_session(folder.write("a.json", "{")), FormatError);
  const auto refuse = [&](const std::string& text, const char* words) {
    INFO(text);
    CHECK_SAYS_AS(ConfigError, rig.app().load_session(folder.write("b.json", text)), "b.json",
                  words);
    CHECK(rig.session().to_json(folder.path()) == before);
  };
  refuse("[]", "kvscope-session");
  refuse(R"({"kind": "other"})", "kvscope-session");
  for (const auto& [part, words] : {std::pair{R"("version": 99)", "newer"},
                                    {R"("selection": {"selector": "magic"})", "magic"},
                                    {R"("parameters": {"budget": "many"})", "budget"},
                                    {R"("parameters": {"budget": -1})", "budget"},
                                    {R"("parameters": 3)", "object"},
                                    {R"("ticked": ["quest", "magic"])", "magic"},
                                    {R"("layout": {"arrangement": {"split": "diagonal"}})", ""}})
    refuse(fmt::format(R"({{"kind": "kvscope-session", {}}})", part), words);
  CHECK_THROWS_AS(rig.app().show_panel_alone("no-such"), ConfigError);
  CHECK_THROWS_AS(rig.app().show_layout("no-such"), ConfigError);
  rig.settle();
}

TEST_CASE("the first trace opens on its strongest head, unless somebody was faster or said so") {
  AppOptions options{.opens_on_interest = true};
  const auto trace = embedded_trace(/*draft=*/false, 1500, 0);
  Rig rig({1200, 900}, options);
  rig.open(trace);
  CHECK(rig.app().state()["layout"]["name"] == "atlas");
  const Selection opened = rig.session().selection();
  const auto atlas = rig.app().panel("heads").options();
  CHECK(atlas["number"] == "retrieval");
  CHECK(atlas["sort"] == "largest");
  const auto places = rig.app().panel("heads").landmarks();
  REQUIRE(!places.empty());
  CHECK(places.front().first == fmt::format("layer {} head {}", opened.layer, opened.q_head));
  rig.session().select_head("test", 0, 0);
  rig.settle();
  CHECK(rig.session().selection().layer == 0);  // once

  Rig told({1200, 900}, options);
  told.app().keep_first_head();
  told.open(trace);
  CHECK(told.session().selection().layer == 0);
  CHECK(told.session().selection().q_head == 0);

  options.settings.opening = Opening::first;
  options.settings.last_layout = "why";
  Rig set({1200, 900}, options);
  set.open(trace);
  CHECK(set.app().state()["layout"]["name"] == "why");
  CHECK(set.session().selection().layer == 0);
}

TEST_CASE("the panels' numbers can be copied and name what they are") {
  Rig rig;
  rig.open_pair(/*with_draft=*/true);
  for (const std::string& name : rig.app().panel_names()) {
    // lists of files, places and runs: nothing is computed there
    if (name == "traces" || name == "results" || name == "bookmarks" || name == "runs" ||
        name == "answer")
      continue;
    INFO(name);
    rig.app().show_panel_alone(name);
    rig.settle();
    const auto csv = rig.app().panel(name).csv();
    REQUIRE(csv.has_value());
    CHECK(std::count(csv->begin(), csv->end(), '\n') > 1);
    const auto figure = rig.app().panel(name).figure();
    REQUIRE(figure.has_value());
    CHECK_NOTHROW(plot::check_figure(*figure));
    CHECK_FALSE(figure->caption.empty());
  }
}

}  // namespace kvscope::gui::test::app_test
