// What is opened in the window, and what goes again: sessions, results, messages, closed files.
#include <GLFW/glfw3.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "core/base/error.hpp"
#include "gui/app/run.hpp"
#include "gui/model/results/export.hpp"
#include "gui/render/look.hpp"
#include "tests/gui/app_rig.hpp"
#include "traces/reader.hpp"

namespace kvscope::gui::test::app_files_test {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using testing::TempDir;

const char* kSweep =
    "trace,phase,selector,budget_kind,layer,q_head,budget,dense,window,kept,mass_mean\n"
    "t,prefill,quest,tokens,1,0,16,0,0,16,0.5\nt,prefill,quest,tokens,1,1,16,0,0,16,0.6\n";

std::optional<ImVec2> place_of(Rig& rig, const std::string& name) {
  const auto state = rig.app().state();
  if (!state["landmarks"].contains(name)) return std::nullopt;
  return ImVec2{state["landmarks"][name][0].get<float>(), state["landmarks"][name][1].get<float>()};
}

void click(Rig& rig, const std::string& name) {
  INFO(name);
  const auto at = place_of(rig, name);
  REQUIRE(at);
  rig.click(at->x, at->y);
  rig.settle();
}

std::string shown_result(Rig& rig) {
  return rig.app().panel("results").options().at("result").get<std::string>();
}

/// Open files of this process below a folder.
int n_open_below(const fs::path& folder) {
  int n = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const fs::path target = fs::read_symlink(entry.path(), error);
    if (!error && target.string().starts_with(folder.string())) ++n;
  }
  return n;
}

/// The embedded verifier's trace with NaN for the first queries of layer 0, head 0.
fs::path damaged_trace(const fs::path& to) {
  const fs::path from = embedded_trace(/*draft=*/false);
  const Tensor<float> q = TraceFile::open(from, {}).read_q(0, 0, {0, 1});
  std::string bytes = testing::read_file(from);
  const std::string row(reinterpret_cast<const char*>(q.data()), 16 * sizeof(float));
  const std::size_t at = bytes.find(row);
  REQUIRE(at != std::string::npos);
  bytes.replace(at, row.size(), row.size(), '\xff');
  std::ofstream(to, std::ios::binary) << bytes;
  return to;
}

TEST_CASE("the file dialog opens several files: Ctrl takes one more, Shift all between") {
  const TempDir folder;
  for (const char* name : {"a.h5", "b.h5", "c.h5", "d.h5"})
    fs::copy_file(embedded_trace(/*draft=*/false, 96, 4), folder.path() / name);
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  Rig rig;
  const auto click_with = [&](const char* entry, bool ctrl, bool shift) {
    const auto at = place_of(rig, entry);
    REQUIRE(at);
    rig.backend().set_modifiers(ctrl, shift, false);
    rig.click(at->x, at->y);
    rig.backend().set_modifiers(false, false, false);
    rig.frame(2);
  };
  const auto names = [&] {
    std::vector<std::string> all;
    for (const auto& document : rig.session().documents())
      all.push_back(document->path().filename().string());
    std::sort(all.begin(), all.end());
    return all;
  };
  rig.tap(GLFW_KEY_O, /*ctrl=*/true);
  rig.frame(2);
  click_with("entry d.h5", false, false);
  click_with("entry a.h5", false, false);
  click_with("entry c.h5", true, false);
  click(rig, "file dialog ok");
  CHECK(names() == std::vector<std::string>{"a.h5", "c.h5"});

  rig.tap(GLFW_KEY_O, /*ctrl=*/true);
  rig.frame(2);
  click_with("entry b.h5", false, false);
  click_with("entry d.h5", false, true);
  click_with("entry c.h5", true, false);  // that one not
  click(rig, "file dialog ok");
  CHECK(names() == std::vector<std::string>{"a.h5", "b.h5", "c.h5", "d.h5"});
  fs::current_path(before);
}

TEST_CASE("the file dialog lists by name, and the newest first when it is asked to") {
  const TempDir folder;
  const auto now = fs::file_time_type::clock::now();
  const std::vector<std::pair<std::string, int>> files = {{"a.h5", 3}, {"b.h5", 1}, {"c.h5", 2}};
  for (const auto& [name, hours] : files) {
    fs::copy_file(embedded_trace(/*draft=*/false, 96, 4), folder.path() / name);
    fs::last_write_time(folder.path() / name, now - std::chrono::hours(hours));
  }
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  Rig rig;
  const auto order = [&] {
    std::vector<std::pair<float, std::string>> places;
    for (const char* name : {"a.h5", "b.h5", "c.h5"}) {
      const auto at = place_of(rig, std::string("entry ") + name);
      REQUIRE(at);
      places.emplace_back(at->y, name);
    }
    std::sort(places.begin(), places.end());
    return places[0].second + " " + places[1].second + " " + places[2].second;
  };
  rig.tap(GLFW_KEY_O, /*ctrl=*/true);
  rig.frame(2);
  CHECK(order() == "a.h5 b.h5 c.h5");
  click(rig, "file dialog order");
  rig.frame(2);
  CHECK(order() == "b.h5 c.h5 a.h5");
  click(rig, "file dialog order");
  rig.frame(2);
  CHECK(order() == "a.h5 b.h5 c.h5");
  fs::current_path(before);
}

TEST_CASE("a saved session is opened as any file is, and so is an exported view's manifest") {
  const TempDir folder;
  const fs::path file = folder.path() / "s.json";
  {
    Rig rig;
    rig.open_pair();
    rig.session().select("test", [](Selection& s) { s.layer = 3; });
    rig.app().show_layout("bounds");
    rig.settle();
    rig.app().save_session(file);
  }
  Rig rig;
  rig.open(file);
  rig.settle();
  CHECK(rig.session().notices().empty());
  REQUIRE(rig.session().document());
  CHECK(rig.session().selection().layer == 3);
  CHECK(rig.app().area_of("quest-bounds"));
  // one that is damaged is a sentence
  const auto bad = folder.write("bad.json", R"({"kind": "kvscope-session", "parameters": 7})");
  rig.open(bad);
  REQUIRE(rig.session().notices().size() == 1);
  CHECK_THAT(rig.session().notices()[0].sentence, ContainsSubstring("bad.json"));
}

/// The working folder, until the end of a test.
struct WorkingFolder {
  TempDir folder;
  fs::path before = fs::current_path();
  WorkingFolder() { fs::current_path(folder.path()); }
  ~WorkingFolder() { fs::current_path(before); }
};

/// Ctrl+S with a name; the second Enter replaces what has it.
void save_as(Rig& rig, const std::string& name, int n_enters) {
  rig.frame(2);
  if (!name.empty()) rig.backend().type(name);
  for (int i = 0; i < n_enters; ++i) {
    rig.frame(2);
    rig.tap(GLFW_KEY_ENTER);
  }
  rig.frame(2);
}

TEST_CASE("a session is saved under a name that opens it, and offered under it again") {
  const WorkingFolder here;
  for (const auto& [typed, file] :
       {std::pair{"day", "day.json"}, {"night.v2", "night.v2.json"}, {"a.json", "a.json"}}) {
    INFO(typed);
    Rig rig;
    rig.open_pair();
    rig.session().add_bookmark("noted");
    rig.tap(GLFW_KEY_S, /*ctrl=*/true);
    save_as(rig, typed, 1);
    REQUIRE(fs::exists(here.folder.path() / file));
    rig.session().add_bookmark("later");
    rig.tap(GLFW_KEY_S, /*ctrl=*/true);
    save_as(rig, "", 2);  // the name that stands there
    Rig again;
    again.open(here.folder.path() / file);
    CHECK(again.session().notices().empty());
    CHECK(again.session().bookmarks().size() == 2);
  }
}

TEST_CASE("no bookmark is lost on quit, to another session or to another window") {
  const WorkingFolder here;
  Rig rig;
  rig.tap(GLFW_KEY_Q, /*ctrl=*/true);
  CHECK(rig.app().wants_quit());  // nothing to lose
  rig.open_pair();
  rig.session().add_bookmark("noted");
  Rig other;
  rig.app().save_session("s.json");
  other.open(here.folder.path() / "s.json");
  for (Rig* one : {&rig, &other}) {
    one->app().ask_quit();
    CHECK(one->app().wants_quit());  // saved
    one->session().add_bookmark(one == &rig ? "mine" : "yours");
    one->tap(GLFW_KEY_Q, /*ctrl=*/true);
    one->frame(2);
    CHECK_FALSE(one->app().wants_quit());
    click(*one, "Cancel");
    CHECK_FALSE(one->app().wants_quit());
  }
  other.open(here.folder.path() / "s.json");
  CHECK(other.session().bookmarks().size() == 2);
  CHECK_THAT(other.session().notices().back().sentence, ContainsSubstring("s.json is not opened"));

  const auto saves_and_quits = [](Rig& one) {
    one.tap(GLFW_KEY_Q, /*ctrl=*/true);
    one.frame(2);
    click(one, "Save the session...");
    save_as(one, "", 2);
    return one.app().wants_quit();
  };
  CHECK(saves_and_quits(rig));
  const std::string mine = testing::read_file("s.json");
  CHECK_THAT(mine, ContainsSubstring("\"mine\""));
  CHECK_FALSE(saves_and_quits(other));
  CHECK(testing::read_file("s.json") == mine);
  CHECK_THAT(other.session().notices().back().sentence, ContainsSubstring("changed since"));
  CHECK(saves_and_quits(other));  // told so
  CHECK_THAT(testing::read_file("s.json"), ContainsSubstring("\"yours\""));

  Rig last;
  last.open_pair();
  last.session().add_bookmark("in vain");
  last.tap(GLFW_KEY_Q, /*ctrl=*/true);
  last.frame(2);
  click(last, "Quit without them");
  CHECK(last.app().wants_quit());
}

TEST_CASE("opening leads to something to see") {
  const TempDir folder;
  Rig rig;
  rig.app().show_layout("results");  // as the settings remember it
  rig.frame(2);
  rig.open_pair();
  CHECK(rig.app().area_of("attention-map"));
  rig.open(folder.write("bad.json", "{\"x\": "));
  CHECK(rig.session().notices().size() == 1);
  CHECK(rig.app().area_of("attention-map"));
  const auto open_sweep = [&](const char* name, const std::string& more) {
    std::string text = std::string(kSweep, std::string_view(kSweep).find('\n')) + more + "\n";
    for (const char* budget : {"16", "32"})
      text += fmt::format("t,prefill,quest,tokens,1,0,{},0,0,{},0.7{}\n", budget, budget,
                          more.empty() ? "" : ",0.6,0.1");
    rig.open(folder.write(name, text));
    rig.settle();
    CHECK(rig.app().area_of("results"));
    return rig.app().panel("results").options()["show"];
  };
  CHECK(open_sweep("sweep.csv", ",recall10,output_error_rel") == "figure");
  const Panel& results = rig.app().panel("results");
  CHECK(results.figure());
  // What the first figure needs is not there: the next one that fits is drawn, or the lines.
  CHECK(open_sweep("less.csv", "") == "figure");
  CHECK(results.figure());
  rig.open(folder.write("few.csv", "length,seconds\n1,2\n2,3\n"));
  rig.settle();
  CHECK(results.options()["show"] == "table");
  CHECK(results.csv());
  CHECK(rig.session().notices().size() == 1);
  // who asked for the table gets it
  rig.app().panel("results").set_options({{"result", "sweep.csv"}, {"show", "table"}});
  rig.settle();
  CHECK(results.options()["show"] == "table");
}

TEST_CASE("a trace that is opened beside two others is selected, and results are remembered") {
  const TempDir folder;
  Rig rig;
  rig.open_pair(/*with_draft=*/true);
  CHECK(rig.session().selection().trace == 0);
  rig.open(embedded_trace(/*draft=*/false, 96, 4));
  REQUIRE(rig.session().documents().size() == 3);
  CHECK(rig.session().selection().trace == 2);
  const auto result = folder.write("s.csv", kSweep);
  rig.open(result);
  rig.settle();
  CHECK(rig.app().settings().recent.front() == result.string());
}

TEST_CASE("what a command line says of the window is not remembered; what the user does is") {
  const TempDir folder;
  const fs::path file = folder.path() / "explorer.json";
  NullBackend backend({800, 600});
  AppOptions options{.settings_file = file, .n_threads = 1};
  App app(std::move(options), backend.fonts(), backend.texture_store());
  const auto frame = [&] { backend.frame([&] { app.frame(1.0f); }); };
  app.for_this_window([&](Settings& settings) {
    settings.ui_scale = 2.0;
    settings.theme = plot::Ground::dark;
    app.show_layout("bounds");
  });
  frame();
  CHECK(app.look().scale == 2.0f);
  CHECK(load_settings(file).ui_scale == 1.0);
  CHECK(load_settings(file).theme == plot::Ground::light);
  CHECK(load_settings(file).last_layout == "overview");
  app.show_layout("draft");
  frame();
  CHECK(load_settings(file).last_layout == "draft");
  CHECK(load_settings(file).ui_scale == 1.0);
}

TEST_CASE("results stand in the side bar, and are shown when they are opened and clicked") {
  const TempDir folder;
  const auto one = folder.write("one.csv", kSweep);
  const auto two = folder.write("two.csv", kSweep);
  Rig rig;
  rig.open_pair();
  rig.app().show_layout("overview");
  rig.settle();
  CHECK_FALSE(rig.app().area_of("results"));
  rig.open(one);
  rig.settle();
  CHECK(rig.app().area_of("results"));
  CHECK(shown_result(rig) == "one.csv");
  rig.app().show_layout("overview");
  rig.open(two);
  rig.settle();
  CHECK(shown_result(rig) == "two.csv");
  CHECK(place_of(rig, "result 1"));
  rig.app().show_layout("overview");
  rig.settle();
  click(rig, "result 0");
  CHECK(rig.app().area_of("results"));
  CHECK(shown_result(rig) == "one.csv");
}

TEST_CASE("a table is offered as what it can be exported as") {
  const TempDir folder;
  Rig rig;
  rig.open(folder.write("one.csv", kSweep));
  rig.settle();
  rig.app().panel("results").set_options({{"show", "table"}});
  rig.app().show_panel_alone("results");
  rig.settle();
  rig.tap(GLFW_KEY_E, /*ctrl=*/true);
  rig.frame(3);
  CHECK(place_of(rig, "csv only"));
  rig.tap(GLFW_KEY_ESCAPE);
  rig.app().panel("results").set_options({{"show", "figure"}});
  rig.settle();
  if (!rig.app().panel("results").figure()) return;  // no figure fits these rows
  rig.tap(GLFW_KEY_E, /*ctrl=*/true);
  rig.frame(3);
  CHECK_FALSE(place_of(rig, "csv only"));
}

TEST_CASE("after a session was restored, results that are opened later are shown") {
  const TempDir folder;
  const auto one = folder.write("one.csv", kSweep);
  const auto two = folder.write("two.csv", kSweep);
  const fs::path file = folder.path() / "s.json";
  {
    Rig rig;
    rig.open(one);
    rig.open(two);
    rig.settle();
    rig.app().panel("results").set_options({{"result", "one.csv"}});
    rig.settle();
    rig.app().save_session(file);
  }
  Rig rig;
  rig.app().load_session(file);
  rig.settle();
  CHECK(shown_result(rig) == "one.csv");
  const auto three = folder.write("three.csv", kSweep);
  rig.open(three);
  rig.settle();
  CHECK(shown_result(rig) == "three.csv");
}

TEST_CASE("of several files one that is missing is said, and the others open") {
  const TempDir folder;
  Rig rig;
  rig.app().open(folder.path() / "missing.h5");
  rig.app().open(embedded_trace(/*draft=*/false));
  rig.settle();
  CHECK(rig.session().documents().size() == 1);
  REQUIRE(rig.session().notices().size() == 1);
  CHECK_THAT(rig.session().notices()[0].sentence, ContainsSubstring("missing.h5"));
}

TEST_CASE("fields and boxes without a tick are seen on both grounds") {
  for (const plot::Ground ground : {plot::Ground::light, plot::Ground::dark}) {
    const Look look = make_look(ground, 1.0f);
    ImGuiStyle style;
    apply_look(look, style);
    const ImVec4 field = style.Colors[ImGuiCol_FrameBg];
    for (const int other : {ImGuiCol_PopupBg, ImGuiCol_Button}) {
      const ImVec4 beside = style.Colors[other];
      const float apart = std::abs(field.x - beside.x) + std::abs(field.y - beside.y) +
                          std::abs(field.z - beside.z);
      INFO(other);
      CHECK(apart > 0.1f);
    }
  }
}

TEST_CASE("many messages are one line, and go at once") {
  Rig rig;
  rig.open_pair();
  const float before = rig.area("attention-map").h;
  for (int i = 0; i < 45; ++i) rig.session().notify("problem " + std::to_string(i));
  rig.settle();
  CHECK(rig.area("attention-map").h > 0.9f * before);
  click(rig, "show messages");
  CHECK(rig.area("attention-map").h > 0.5f * before);
  click(rig, "dismiss all");
  CHECK(rig.session().notices().empty());
  CHECK(rig.area("attention-map").h == before);
}

TEST_CASE("closing the last trace closes its file") {
  const TempDir folder;
  const fs::path copy = folder.path() / "copy.h5";
  fs::copy_file(embedded_trace(/*draft=*/false), copy);
  Rig rig;
  rig.open(copy);
  rig.settle();
  for (const auto& layout : {"budget", "bounds", "overview"}) {
    rig.app().show_layout(layout);
    rig.settle();
  }
  REQUIRE(n_open_below(folder.path()) > 0);
  rig.session().close_trace(0);
  rig.settle();
  CHECK(n_open_below(folder.path()) == 0);
}

TEST_CASE("closing one of two traces closes its file in panels that are out of sight too") {
  const TempDir folder;
  const fs::path copy = folder.path() / "copy.h5";
  fs::copy_file(embedded_trace(/*draft=*/false), copy);
  Rig rig;
  rig.open(copy);
  rig.settle();
  rig.app().show_layout("bounds");
  rig.settle();
  rig.app().show_layout("overview");
  rig.open(embedded_trace(/*draft=*/true));
  rig.settle();
  rig.session().close_trace(0);
  rig.settle();
  CHECK(n_open_below(folder.path()) == 0);
  CHECK(rig.session().documents().size() == 1);
}

TEST_CASE("an exported view is drawn again from its manifest, to the same bytes", "[reproduce]") {
  const TempDir folder;
  {
    Rig rig;
    rig.open_pair();
    rig.app().show_layout("overview");
    rig.settle();
    ExportRequest request = rig.app().export_of(rig.app().panel("attention-map"), folder.path());
    request.formats = {ExportFormat::svg};
    request.stem = "view";
    export_view(request, Existing::keep);
  }
  CommandLine line{.reproduce = folder.path() / "view.json"};
  CHECK(run(line) == 0);
  folder.write("view.svg", "another picture");
  CHECK(run(line) == 5);
  line.reproduce = folder.write("other.json", "{\"format\": \"kvscope-figure\"}");
  CHECK_THROWS_AS(run(line), FormatError);
}

TEST_CASE("a screenshot of a panel that shows an error ends with an error, and is written") {
  const TempDir folder;
  CommandLine line{.files = {embedded_trace(/*draft=*/false)},
                   .screenshot = folder.path() / "fine.png",
                   .panel = "layer-map"};
  CHECK(run(line) == 0);  // an empty place is no error
  // keys in this copy are damaged: the map cannot be computed
  CommandLine broken = line;
  broken.files = {damaged_trace(folder.path() / "broken.h5")};
  broken.panel = "attention-map";
  broken.layer = 0;
  broken.head = 0;
  broken.screenshot = folder.path() / "broken.png";
  CHECK_THROWS_AS(run(broken), FormatError);
  CHECK(fs::file_size(*broken.screenshot) > 1000);
}

}  // namespace kvscope::gui::test::app_files_test
