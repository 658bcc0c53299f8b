// What is opened in the window, and what goes again: sessions, results, messages, closed files.
#include <GLFW/glfw3.h>
#include <unistd.h>

#include <fstream>

#include "gui/app/run.hpp"
#include "gui/model/results/export.hpp"
#include "tests/gui/app_rig.hpp"
#include "tests/support/test.hpp"
#include "traces/reader.hpp"

namespace kvscope::gui::test::app_files_test {

using testing::TempDir;

void click(Rig& rig, const std::string& name) {
  rig.click(rig.mark(name));
  rig.settle();
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
  CHECK_THAT(rig.app().title(), ContainsSubstring("not saved *"));
  rig.app().export_page();  // a page is no place from which the bookmark comes back
  CHECK_THAT(rig.app().title(), ContainsSubstring("not saved *"));
  Rig other;
  rig.app().save_session("s.json");
  CHECK_THAT(rig.app().title(), ContainsSubstring(" - s.json - "));
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
