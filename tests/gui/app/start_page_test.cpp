// The first minute: samples, a recording, dropped files, the tour; and commands that run beside the
// window.
#include <GLFW/glfw3.h>

#include <fmt/format.h>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "tests/gui/app_rig.hpp"
#include "tests/support/test.hpp"

namespace kvscope::gui::test::start_page_test {

using testing::TempDir;

void press(Rig& rig, const std::string& name) {
  rig.click(rig.mark(name));
  rig.frame(2);
}

/// The same of what is there when the program has told its commands.
void press_when_there(Rig& rig, const std::string& name) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!rig.find_mark(name)) {
    REQUIRE(std::chrono::steady_clock::now() < end);
    rig.frame();
  }
  press(rig, name);
}

/// Frames until every command is over and what it made is open.
void finish_runs(Rig& rig) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(270);
  while (!rig.app().runs().is_idle()) {
    REQUIRE(std::chrono::steady_clock::now() < end);
    rig.frame();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  rig.settle();
}

/// The configuration, and with it the samples, in a folder of the test; back at the end.
struct OwnConfig {
  OwnConfig() { ::setenv("KVSCOPE_CONFIG", folder.path().c_str(), 1); }
  ~OwnConfig() { ::unsetenv("KVSCOPE_CONFIG"); }
  TempDir folder;
};

/// Another current folder, where recordings go.
struct InFolder {
  explicit InFolder(const fs::path& folder) : before(fs::current_path()) {
    fs::current_path(folder);
  }
  ~InFolder() { fs::current_path(before); }
  fs::path before;
};

TEST_CASE("the start page records the samples, opens them, and begins the tour once") {
  const OwnConfig config;
  {
    Rig rig;
    rig.settle();
    press(rig, "Record the samples");
    CHECK(rig.app().state()["runs"].size() == 2);
    CHECK(rig.find_mark("run 1 cancel"));
    finish_runs(rig);
    REQUIRE(rig.session().documents().size() == 2);
    CHECK(rig.session().second());
    CHECK(rig.session().notices().empty());
    CHECK(rig.app().state()["tour"] == 1);
    rig.tap(GLFW_KEY_ESCAPE);
    rig.frame(2);
    CHECK(rig.app().state()["tour"].is_null());
    CHECK(rig.app().settings().tour_done);
  }
  Rig rig;
  rig.settle();
  CHECK_FALSE(rig.find_mark("Record the samples"));
  press(rig, "Open the samples");
  rig.settle();
  CHECK(rig.session().documents().size() == 2);
}

TEST_CASE("samples that were not recorded to their end are removed, and said to be") {
  const OwnConfig config;
  Rig rig;
  rig.settle();
  press(rig, "Record the samples");
  const std::uint64_t id = rig.app().runs().runs()[0].id;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(270);
  while (rig.app().runs().runs()[0].status.progress.done == 0) {
    REQUIRE(std::chrono::steady_clock::now() < end);
    rig.frame();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  rig.app().runs().cancel(id);
  finish_runs(rig);
  CHECK(rig.app().runs().runs()[0].status.state == JobState::cancelled);
  CHECK(rig.session().documents().empty());
  CHECK_FALSE(fs::exists(cache_folder("samples") / "verifier.h5"));
  CHECK_FALSE(fs::exists(cache_folder("samples") / "draft.h5"));
  CHECK(rig.find_mark("Record the samples"));
}

TEST_CASE("recent files are opened by a click; one that is gone says so and cannot be") {
  const OwnConfig config;
  const fs::path there = config.folder.path() / "there.h5";
  fs::copy_file(embedded_trace(/*draft=*/false), there);
  AppOptions options{.settings = {.recent = {there.string(), "/nowhere/gone.h5"}}};
  {
    Rig rig({1280, 800}, options);
    rig.settle();
    CHECK(rig.session().notices().empty());
    press(rig, "recent 1");
    rig.settle();
    CHECK(rig.session().documents().empty());
    press(rig, "recent 0");
    rig.settle();
    CHECK(rig.session().documents().size() == 1);
  }
  // A file that goes while the page is there.
  Rig rig({1280, 800}, options);
  rig.settle();
  fs::remove(there);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  rig.frame(2);
  press(rig, "recent 0");
  rig.settle();
  CHECK(rig.session().documents().empty());
}

TEST_CASE("a model that this machine has is recorded by a click on its name") {
  const OwnConfig config;
  const fs::path hub = config.folder.path() / "hub";
  const fs::path snapshot = hub / "models--org--tiny" / "snapshots" / "abc";
  fs::create_directories(snapshot);
  fs::create_directories(hub / "models--org--tiny" / "refs");
  std::ofstream(hub / "models--org--tiny" / "refs" / "main") << "abc";
  std::ofstream(snapshot / "config.json") << "{}";
  ::setenv("HF_HUB_CACHE", hub.c_str(), 1);
  Rig rig({1280, 800});
  rig.settle();
  press(rig, "model org/tiny");
  press_when_there(rig, "run command");
  REQUIRE(rig.app().runs().runs().size() == 1);
  CHECK_THAT(rig.app().runs().runs()[0].command_line(), ContainsSubstring("org/tiny"));
  finish_runs(rig);
  ::unsetenv("HF_HUB_CACHE");
}

TEST_CASE("samples that cannot be opened stay where they are, and the reason is shown") {
  const OwnConfig config;
  fs::create_directories(cache_folder("samples"));
  const fs::path verifier = cache_folder("samples") / "verifier.h5";
  const fs::path draft = cache_folder("samples") / "draft.h5";
  std::ofstream(verifier) << "not to be read now";
  fs::copy_file(embedded_trace(/*draft=*/true), draft);
  Rig rig;
  rig.settle();
  press(rig, "Open the samples");
  rig.settle();
  CHECK(fs::exists(verifier));
  CHECK(fs::exists(draft));
  CHECK(rig.session().documents().empty());
  REQUIRE(rig.session().notices().size() == 1);
  CHECK_THAT(rig.session().notices()[0].sentence, ContainsSubstring("verifier.h5"));
}

TEST_CASE("the tour's six steps point at what is there, to its end") {
  Rig rig;
  rig.open_pair();
  press(rig, "tour");
  rig.settle();
  CHECK(tour_steps().front().target == "heads");
  CHECK(tour_steps().back().target == "why");
  std::string best;  // by the atlas: its heads by retrieval, the largest first
  for (int step = 1; step <= 6; ++step) {
    INFO(step);
    CHECK(rig.app().state()["tour"] == step);
    const std::string target = tour_steps()[step - 1].target;
    CHECK((rig.find_mark(target) || rig.app().area_of(target)));
    if (step == 1) {
      rig.app().panel("heads").set_options({{"sort", "largest"}});
      rig.settle();
      best = rig.app().panel("heads").landmarks().front().first;
    }
    if (step == 2) {
      const Selection& s = rig.session().selection();
      CHECK(fmt::format("layer {} head {}", s.layer, s.q_head) == best);
      REQUIRE(s.key);
      const auto tokens = rig.session().document()->source().tokens();
      CHECK(tokens[*s.key - 1] == tokens[s.query]);
    }
    if (step == 4) {
      press(rig, "tour back");
      CHECK(rig.app().state()["tour"] == 3);
      rig.settle();
      press(rig, "tour next");
    }
    rig.settle();
    press(rig, "tour next");
    rig.settle();
  }
  CHECK(rig.app().state()["tour"].is_null());
  CHECK(rig.app().settings().tour_done);
  // without a trace it says so
  Rig empty;
  empty.settle();
  press(empty, "tour");
  CHECK(empty.app().state()["tour"].is_null());
}

TEST_CASE("a typed text is recorded, and the trace is opened when it is whole") {
  const TempDir folder;
  const InFolder here(folder.path());
  Rig rig;
  rig.settle();
  press(rig, "Record a model...");
  press_when_there(rig, "option prompt");
  rig.backend().type("What is looked at, and by whom?");
  rig.frame(2);
  press(rig, "run command");
  finish_runs(rig);
  REQUIRE(rig.session().document());
  CHECK(rig.session().document()->path().filename() == "trace.h5");
  CHECK(rig.session().document()->file().info().text_source == "command line");
  CHECK_THAT(rig.app().state()["runs"][0]["command"].get<std::string>(),
             ContainsSubstring("--prompt 'What is looked at"));
}

TEST_CASE("a text that is dropped beside an open trace is what Run would record") {
  const TempDir folder;
  const auto text = folder.write("essay.txt", "dropped words");
  Rig rig;
  rig.open_pair();
  rig.app().open(text);
  rig.settle();
  REQUIRE(rig.app().area_of("runs"));
  press_when_there(rig, "copy command");
  CHECK_THAT(std::string(ImGui::GetClipboardText()),
             ContainsSubstring("kvscope record") && ContainsSubstring("--text " + text.string()));
}

TEST_CASE("a command runs from its form, and its result is shown") {
  const TempDir folder;
  const fs::path trace = folder.path() / "t.h5";
  fs::copy_file(embedded_trace(/*draft=*/false), trace);
  Rig rig;
  rig.open(trace);
  rig.settle();
  rig.tap(GLFW_KEY_R, /*ctrl=*/true);
  rig.settle();
  REQUIRE(rig.app().area_of("runs"));
  rig.app().panel("runs").set_options({{"command", "analyze quest"}});
  rig.settle();
  REQUIRE(rig.find_mark("option TRACE"));
  press(rig, "copy command");
  CHECK_THAT(std::string(ImGui::GetClipboardText()),
             ContainsSubstring("kvscope analyze quest " + trace.string() + " --out"));
  press(rig, "run command");
  finish_runs(rig);
  REQUIRE(rig.session().results().size() == 1);
  CHECK(fs::exists(folder.path() / "t-analyze-quest.h5"));
  CHECK(rig.app().area_of("results"));
  // once more goes to another file; a trace that is gone is one sentence
  rig.tap(GLFW_KEY_R, /*ctrl=*/true);
  rig.settle();
  fs::remove(trace);
  press(rig, "run command");
  finish_runs(rig);
  const auto run = rig.app().state()["runs"].back();
  CHECK(run["state"] == "failed");
  CHECK_THAT(run["error"].get<std::string>(), ContainsSubstring("t.h5"));
  CHECK_THAT(run["out"].get<std::string>(), ContainsSubstring("t-analyze-quest-2.h5"));
  press(rig, "run 2 forget");
  CHECK(rig.app().state()["runs"].size() == 1);
}

TEST_CASE("a study runs from its form, and the table of what is known opens") {
  const TempDir folder;
  const fs::path bad = folder.path() / "bad.h5";
  fs::copy_file(embedded_trace(/*draft=*/true), bad);
  testing::flip(bad);
  const fs::path study = folder.write("s.toml", R"(recordings = ["bad.h5"]
models = ["draft"]
texts = ["book"]
methods = ["quest"]
budgets = [16]
[record]
max-tokens = 96
[tasks.sweep]
)");
  Rig rig;
  rig.settle();
  rig.app().open(study);
  press_when_there(rig, "run command");
  finish_runs(rig);
  const auto runs = rig.app().state()["runs"];
  INFO(runs.dump(1));
  REQUIRE(rig.session().results().size() == 1);
  CHECK_THAT(rig.session().results().front()->name(), ContainsSubstring("s-table.csv"));
  CHECK(rig.app().area_of("results"));
  REQUIRE(runs.size() == 1);
  CHECK_THAT(runs[0]["remark"].get<std::string>(), ContainsSubstring("1 of 3 items failed"));
}

TEST_CASE("a whole trace is exported as a page, and a figure in several formats at once") {
  const TempDir folder;
  const fs::path trace = folder.path() / "t.h5";
  fs::copy_file(embedded_trace(/*draft=*/false), trace);
  const InFolder here(folder.path());
  Rig rig;
  rig.open(trace);
  rig.settle();
  rig.app().show_panel_alone("attention-map");
  rig.settle();
  rig.tap(GLFW_KEY_E, /*ctrl=*/true);
  rig.frame(3);
  press(rig, "format svg");  // beside pdf, which is chosen
  press(rig, "export");
  rig.settle();
  int n_svg = 0;
  int n_pdf = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    n_svg += entry.path().extension() == ".svg" ? 1 : 0;
    n_pdf += entry.path().extension() == ".pdf" ? 1 : 0;
  }
  CHECK(n_svg == 1);
  CHECK(n_pdf == 1);
  rig.tap(GLFW_KEY_E, /*ctrl=*/true);
  rig.frame(3);
  press(rig, "export page");
  finish_runs(rig);
  CHECK(fs::exists(folder.path() / "t.html"));
  CHECK(rig.session().notices().empty());
}

TEST_CASE("a result that changes on disk is offered to be read again") {
  const char* head =
      "trace,phase,selector,budget_kind,layer,q_head,budget,dense,window,kept,mass_mean\n";
  const TempDir folder;
  const auto file =
      folder.write("s.csv", std::string(head) + "t,prefill,quest,tokens,1,0,16,0,0,16,0.5\n");
  Rig rig;
  rig.open(file);
  rig.settle();
  const auto before = rig.session().results()[0];
  std::ofstream(file) << head << "t,prefill,quest,tokens,1,0,16,0,0,16,0.5\n"
                      << "t,prefill,quest,tokens,1,1,16,0,0,16,0.7\n";
  CHECK(rig.app().has_news());
  rig.frame(2);
  CHECK(rig.session().results()[0] == before);
  press(rig, "reload 0");
  rig.settle();
  CHECK(rig.session().results()[0] != before);
  CHECK(rig.session().notices().empty());
  CHECK_FALSE(rig.app().has_news());
}

}  // namespace kvscope::gui::test::start_page_test
