// Without a mouse: the palette, bookmarks, help, menus, and arrows that go from control to control;
// and the panel that says why a key was dropped.
#include <GLFW/glfw3.h>
#include <fmt/ranges.h>
#include <imgui_internal.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "notebooks_export/html_page.hpp"
#include "tests/gui/app_rig.hpp"
#include "tests/support/test.hpp"
#include "traces/reader.hpp"

namespace kvscope::gui::test::keyboard_test {

void type_and_enter(Rig& rig, const std::string& text) {
  rig.backend().type(text);
  rig.frame(2);
  rig.tap(GLFW_KEY_ENTER);
  rig.frame();
}

TEST_CASE(
    "the palette is an index: commands, switches, atlas scores, places, panels, other words") {
  Rig rig;
  rig.open_pair();
  rig.tap(GLFW_KEY_K, /*ctrl=*/true);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (rig.app().runs().commands().empty()) {
    REQUIRE(std::chrono::steady_clock::now() < end);
    rig.frame();
  }
  rig.tap(GLFW_KEY_ESCAPE);
  rig.frame(2);
  // What each word leads to first, by what it changes.
  const auto run = [&](const std::string& words) {
    rig.tap(GLFW_KEY_K, /*ctrl=*/true);
    rig.frame(2);
    type_and_enter(rig, words);
    rig.frame(2);
    return rig.app().state();
  };
  CHECK(run("atlas retrieval")["panels"]["heads"]["number"] == "retrieval");
  CHECK(rig.app().area_of("heads"));
  CHECK(run("heads lost")["panels"]["heads"]["number"] == "lost_mass");
  CHECK(run("record")["panels"]["runs"]["command"] == "record");
  CHECK(rig.app().area_of("runs"));
  CHECK(run("run sweep")["panels"]["runs"]["command"] == "sweep");
  CHECK(run("niah haystack")["panels"]["runs"]["command"] == "simulate retrieval");
  CHECK(run("attention map scale log")["panels"]["attention-map"]["scale"] == "log");
  CHECK(run("select h2o")["selection"]["selector"] == "h2o");
  CHECK(run("2309.17453 select")["selection"]["selector"] == "streamingllm");
  CHECK(run("layer 3 head 2 query 100 key 7")["selection"]["key"] == 7);
  CHECK(rig.session().selection().q_head == 2);
  const auto theme = rig.app().settings().theme;
  run("light or dark");
  CHECK(rig.app().settings().theme != theme);
  run("bookmarks");
  CHECK(rig.app().area_of("bookmarks"));
  rig.tap(GLFW_KEY_K, /*ctrl=*/true);
  rig.frame(2);
  rig.tap(GLFW_KEY_ESCAPE);
  rig.frame(2);
  CHECK(rig.app().area_of("bookmarks"));
}

TEST_CASE("Ctrl+Z in a field that was left and changed since undoes nothing that is gone") {
  Rig rig;
  rig.open_pair();
  const auto undo_and_type = [&] {
    for (int i = 0; i < 4; ++i) {  // a letter each
      rig.tap(GLFW_KEY_Z, /*ctrl=*/true);
      // What is typed next would be written before the text.
      REQUIRE(ImGui::GetCurrentContext()->InputTextState.CurLenW >= 0);
    }
    rig.backend().type("1");
    rig.frame(2);
  };
  // A number that is clamped when it is entered: eleven letters become one.
  const ImVec2 layer = rig.mark("layer");
  rig.click(layer.x - 40, layer.y);
  rig.frame();
  REQUIRE(ImGui::GetIO().WantTextInput);
  type_and_enter(rig, "99999999999");
  rig.frame(2);
  rig.click(layer.x - 40, layer.y);
  rig.frame();
  REQUIRE(ImGui::GetIO().WantTextInput);
  undo_and_type();
  rig.tap(GLFW_KEY_ESCAPE);
  rig.frame(2);
  // A field that is cleared when it opens.
  for (int i = 0; i < 2; ++i) {
    rig.tap(GLFW_KEY_K, /*ctrl=*/true);
    rig.frame(2);
    REQUIRE(ImGui::GetIO().WantTextInput);
    undo_and_type();
    rig.tap(GLFW_KEY_A, /*ctrl=*/true);
    type_and_enter(rig, "layer 3 head 2 query 100");
    rig.frame(2);
    CHECK(rig.session().selection().layer == 3);
  }
}

TEST_CASE("Ctrl+B bookmarks the selection with a note, and the panel goes back to it") {
  Rig rig;
  rig.open_pair();
  rig.session().select("test", [](Selection& s) {
    s.layer = 2;
    s.query = 50;
    s.key = 9;
  });
  rig.tap(GLFW_KEY_B, /*ctrl=*/true);
  rig.frame(2);
  type_and_enter(rig, "odd key");
  REQUIRE(rig.session().bookmarks().size() == 1);
  CHECK(rig.session().bookmarks()[0].note == "odd key");
  CHECK(rig.session().bookmarks()[0].key == 9);
  rig.session().select("test", [](Selection& s) { s.layer = 4; });
  rig.app().show_panel_alone("bookmarks");
  rig.frame(2);
  rig.click(rig.mark("bookmark 0"));
  CHECK(rig.session().selection().layer == 2);
  CHECK(rig.app().state()["bookmarks"].size() == 1);
  rig.session().select("test", [](Selection& s) { s.layer = 4; });
  rig.tap(GLFW_KEY_PAGE_UP, /*ctrl=*/true);
  rig.frame();
  CHECK(rig.session().selection().layer == 2);
}

TEST_CASE("Export page saves the session of the bookmarks, of which the command makes a page") {
  Rig rig;
  rig.open_pair();
  const testing::TempDir folder;
  const auto copy = folder.path() / "copy.h5";
  fs::copy_file(rig.session().document()->path(), copy);
  rig.session().open(copy);
  rig.settle();
  rig.session().select("test", [](Selection& s) {
    s.trace = 2;
    s.query = 50;
  });
  REQUIRE(rig.session().document()->path().filename() == "copy.h5");
  rig.session().add_bookmark("first");
  rig.app().show_panel_alone("bookmarks");
  rig.frame(2);
  rig.click(rig.mark("page of bookmarks"));
  rig.frame(2);
  rig.tap(GLFW_KEY_K, /*ctrl=*/true);  // the palette finds it by its name, and writes another
  rig.frame(2);
  type_and_enter(rig, "export page");
  rig.frame(2);
  const auto& runs = rig.app().runs().runs();
  REQUIRE(runs.size() == 2);
  for (const std::size_t i : {0U, 1U}) {
    const std::string stem = i == 0 ? "copy-page" : "copy-page-2";
    const auto session = folder.path() / (stem + ".json");
    CHECK(std::ranges::find(runs[i].words, session.string()) != runs[i].words.end());
    const PageContent page = page_of_session(session, [](const fs::path& file) {
      return std::make_shared<const TraceFile>(TraceFile::open(file));
    });
    REQUIRE(page.steps.size() == 1);
    CHECK(page.steps[0].title == "first");
  }
}

TEST_CASE("a right click opens a panel's menu, and so does Shift+F10") {
  Rig rig;
  rig.open_pair();
  rig.app().show_panel_alone("recall");
  rig.settle();
  const Area area = rig.area("recall");
  const auto shows_menu = [&] { return rig.app().state()["landmarks"].contains("menu: export"); };
  CHECK_FALSE(shows_menu());
  rig.click({area.x + area.w * 0.6f, area.y + area.h * 0.5f}, /*button=*/1);
  rig.frame(2);
  CHECK(shows_menu());
  rig.tap(GLFW_KEY_ESCAPE);
  rig.frame(2);
  CHECK_FALSE(shows_menu());
  rig.tap(GLFW_KEY_F10, /*ctrl=*/false, /*shift=*/true);
  rig.frame(2);
  CHECK(shows_menu());
}

/// The panel why alone, of a small budget.
struct WhyRig : Rig {
  WhyRig() {
    open_pair();
    session().set_parameters("test", [](Parameters& p) {
      p.budget = 16;
      p.chunk = 64;
    });
    session().select("test", [](Selection& s) {
      s.layer = 3;
      s.query = 190;
    });
    app().show_panel_alone("why");
    settle();
  }
  /// Clicks the first or last row, and returns its landmark.
  std::string click_row(bool first) {
    std::vector<std::string> rows;
    const auto places = app().state()["landmarks"];
    for (const auto& [name, at] : places.items()) {
      if (name.starts_with("row of key ")) rows.push_back(name);
    }
    REQUIRE_FALSE(rows.empty());
    const std::string row = first ? rows.front() : rows.back();
    click(mark(row));
    settle();
    return row;
  }
};

TEST_CASE("why panel: a key's outcome, a click on another one, and the budget that keeps it") {
  WhyRig rig;
  Panel& panel = rig.app().panel("why");
  REQUIRE(panel.figure());
  CHECK_NOTHROW(plot::check_figure(*panel.figure()));
  CHECK_THAT(panel.figure()->caption.back(), ContainsSubstring("Dropped."));
  CHECK_HAS(fmt::format("{}", fmt::join(panel.figure()->caption, " ")), "the method's own unit");
  const auto csv = panel.csv();
  REQUIRE(csv);
  CHECK(std::count(csv->begin(), csv->end(), '\n') == 192);  // all visible keys, and the header
  // Another key, by its row; undone in one step.
  const std::string row = rig.click_row(/*first=*/false);
  CHECK("row of key " + std::to_string(rig.session().selection().key.value_or(-1)) == row);
  rig.session().undo();
  rig.settle();
  // The budget that would have kept the dropped one keeps it.
  const ImVec2 budget = rig.mark("set the budget");
  const std::string dropped = panel.figure()->caption.back();
  rig.click(budget);
  rig.settle();
  CHECK(rig.session().parameters().budget > 16);
  CHECK(panel.figure()->caption.back() != dropped);
}

TEST_CASE("Esc closes what is open in a panel before it leaves the panel") {
  WhyRig rig;
  const auto alone = [&] { return rig.app().state()["layout"]["maximised"].get<std::string>(); };
  // The help above the picture.
  rig.tap(GLFW_KEY_F2);
  rig.frame(2);
  REQUIRE(rig.app().state()["landmarks"].contains("help of why"));
  rig.tap(GLFW_KEY_ESCAPE);
  rig.settle();
  CHECK(alone() == "why");
  // The rows of a table that the arrows go through.
  rig.click_row(/*first=*/true);
  rig.tap(GLFW_KEY_DOWN);
  rig.frame(2);
  rig.tap(GLFW_KEY_ESCAPE);
  rig.frame(2);
  CHECK(alone() == "why");
  rig.tap(GLFW_KEY_ESCAPE);
  rig.frame(2);
  CHECK(alone().empty());
}

/// The child of the window that arrows move in.
std::string place_of_arrows() {
  const ImGuiWindow* window = ImGui::GetCurrentContext()->NavWindow;
  REQUIRE(window != nullptr);
  return window->RootWindowForNav->Name;
}

TEST_CASE("Tab marks a panel's first control, and arrows stay in the panel") {
  Rig rig;
  rig.open_pair();
  rig.app().show_layout("overview");
  rig.settle();
  std::vector<std::string> stops;
  const std::vector<std::string> expected = {"query-selection", "geometry",     "tokens", "side",
                                             "explorer",        "attention-map"};
  for (const std::string& stop : expected) {
    rig.tap(GLFW_KEY_TAB);
    rig.frame(2);
    INFO(stop);
    const ImGuiContext& g = *ImGui::GetCurrentContext();
    CHECK(g.NavId != 0);
    CHECK_FALSE(g.NavDisableHighlight);
    CHECK_THAT(place_of_arrows(), ContainsSubstring(stop));
    if (stop == "explorer") continue;  // the top bar, from which arrows go to everything
    for (const int key : {GLFW_KEY_DOWN, GLFW_KEY_RIGHT, GLFW_KEY_UP, GLFW_KEY_LEFT}) {
      for (int i = 0; i < 6; ++i) rig.tap(key);
      CHECK_THAT(place_of_arrows(), ContainsSubstring(stop));
    }
  }
  rig.tap(GLFW_KEY_TAB, /*ctrl=*/false, /*shift=*/true);
  rig.frame(2);
  CHECK(place_of_arrows() == "explorer");
  rig.tap(GLFW_KEY_ESCAPE);
  rig.frame(2);
  CHECK(ImGui::GetCurrentContext()->NavDisableHighlight);
}

TEST_CASE("on the start page Tab goes to its first button, which Enter presses") {
  Rig rig;
  rig.frame(3);
  rig.tap(GLFW_KEY_TAB);
  rig.frame(2);
  const ImGuiContext& g = *ImGui::GetCurrentContext();
  CHECK_FALSE(g.NavDisableHighlight);
  REQUIRE(g.NavWindow != nullptr);
  CHECK_THAT(g.NavWindow->Name, ContainsSubstring("try"));
  for (int i = 0; i < 3; ++i) rig.tap(GLFW_KEY_RIGHT);  // to the other cards
  rig.frame(2);
  CHECK_THAT(g.NavWindow->Name, !ContainsSubstring("try"));
  rig.tap(GLFW_KEY_TAB);
  rig.frame(2);
  CHECK(place_of_arrows() == "explorer");
}

TEST_CASE("Tab does not leave a panel that stands alone and in no layout for another") {
  Rig rig;
  rig.open_pair();
  rig.app().show_panel_alone("answer");
  rig.settle();
  for (int i = 0; i < 4; ++i) {
    rig.tap(GLFW_KEY_TAB);
    rig.frame(2);
    CHECK(rig.app().area_of("answer"));
    if (i == 0) CHECK_THAT(place_of_arrows(), ContainsSubstring("answer"));
  }
}

TEST_CASE("Enter exports from the dialog, and chooses in a combo") {
  const testing::TempDir folder;
  const auto before = fs::current_path();
  fs::current_path(folder.path());
  Rig rig;
  rig.open_pair();
  rig.app().show_panel_alone("theorem-b1");
  rig.settle();
  const auto n_files = [&] { return std::distance(fs::directory_iterator(folder.path()), {}); };
  rig.tap(GLFW_KEY_E, /*ctrl=*/true);
  rig.frame(3);
  rig.tap(GLFW_KEY_ENTER);
  rig.settle();
  CHECK(n_files() > 0);
  // The palette's Enter opens the dialog and presses nothing in it.
  const auto n = n_files();
  rig.tap(GLFW_KEY_TAB);  // with a mark
  rig.frame(2);
  rig.tap(GLFW_KEY_K, /*ctrl=*/true);
  rig.frame(2);
  rig.backend().type("export what the panel");
  rig.frame(2);
  rig.backend().io().KeysDown[GLFW_KEY_ENTER] = true;
  rig.frame(6);
  rig.backend().io().KeysDown[GLFW_KEY_ENTER] = false;
  rig.settle();
  CHECK(rig.app().state()["landmarks"].contains("export folder"));
  CHECK(n_files() == n);
  rig.tap(GLFW_KEY_ESCAPE);
  rig.settle();
  fs::current_path(before);

  rig.app().show_panel_alone("runs");
  rig.settle();
  const auto command = [&] { return rig.app().state()["panels"]["runs"]["command"]; };
  const auto first = command();
  rig.click(rig.mark("command"));
  rig.frame(2);
  rig.tap(GLFW_KEY_DOWN);
  rig.tap(GLFW_KEY_DOWN);
  rig.tap(GLFW_KEY_ENTER);
  rig.frame(2);
  CHECK(command() != first);
  CHECK_FALSE(ImGui::IsPopupOpen("", ImGuiPopupFlags_AnyPopupId));
}

}  // namespace kvscope::gui::test::keyboard_test
