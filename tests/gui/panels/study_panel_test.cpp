// The panel of a study: what the program says of it, before, while and after a run; wrong files.
#include <GLFW/glfw3.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "gui/model/runs/study_status.hpp"
#include "tests/gui/app_rig.hpp"
#include "tests/support/test.hpp"

namespace kvscope::gui::test::study_panel_test {

using testing::TempDir;

constexpr const char* kStudy = R"(models = ["draft"]
texts = ["book"]
recordings = ["bad.h5"]
methods = ["quest", "streamingllm"]
budgets = [16, 32]
[record]
max-tokens = 96
[tasks.sweep]
chunk = 32
)";

/// A study with a recording in which one bit is wrong.
std::filesystem::path study_in(const TempDir& folder) {
  const auto bad = folder.path() / "bad.h5";
  std::filesystem::copy_file(embedded_trace(/*draft=*/true), bad);
  flip(bad);
  return folder.write("s.toml", kStudy);
}

void press(Rig& rig, const std::string& name) {
  rig.frame();
  rig.click(rig.mark(name));
  rig.frame(2);
}

/// Frames until the panel's line of all items begins so.
std::string line_of_all(Rig& rig, const std::string& begin) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  for (;;) {
    const auto csv = rig.app().panel("study").csv();
    const std::string all = csv ? csv->substr(csv->rfind("\nall,") + 1) : "";
    if (all.starts_with(begin)) return all;
    INFO(all);
    REQUIRE(std::chrono::steady_clock::now() < end);
    rig.frame();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST_CASE("a study's panel says what is known, runs it, and names what failed") {
  const TempDir folder;
  const auto study = study_in(folder);
  Rig rig;
  rig.settle();
  rig.app().show_panel_alone("study");
  rig.settle();
  CHECK_FALSE(rig.app().panel("study").csv());
  press(rig, "study file");
  rig.backend().type(study.string());
  rig.frame(2);
  rig.tap(GLFW_KEY_ENTER);
  line_of_all(rig, "all,9,0,0,9,");
  press(rig, "run study");
  line_of_all(rig, "all,9,5,4,0,");
  rig.settle();
  press(rig, "retry study");
  line_of_all(rig, "all,9,5,4,0,");
  CHECK(rig.app().runs().runs().size() == 2);
  rig.settle();
  press(rig, "open study sweep");
  rig.settle();
  REQUIRE(rig.session().results().size() == 1);
  CHECK_THAT(rig.session().results().front()->name(), ContainsSubstring("s-sweep-table.csv"));
  CHECK(rig.app().area_of("results"));
  // A session has the file; another window asks about it.
  Rig other;
  other.settle();
  other.app().open(study);
  line_of_all(other, "all,9,5,4,0,");
}

TEST_CASE("a study that cannot be read is a sentence in its panel") {
  const TempDir folder;
  Rig rig;
  rig.settle();
  rig.app().show_panel_alone("study");
  rig.app().panel("study").set_options({{"file", folder.file("none.toml")}});
  rig.settle();
  CHECK_FALSE(rig.app().panel("study").csv());
  REQUIRE(rig.app().panel_errors().size() == 1);
  CHECK_THAT(rig.app().panel_errors().front(), ContainsSubstring("none.toml"));
  CHECK_THROWS_AS(read_study_status("{}"), FormatError);
  CHECK_THROWS_AS(read_study_status("no json"), FormatError);
}

}  // namespace kvscope::gui::test::study_panel_test
