// The recall panel on a null backend: clicks, hovering, ticks, and every state.
#include <GLFW/glfw3.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/base/data_dir.hpp"
#include "gui/model/methods/recall_view.hpp"
#include "tests/gui/app_rig.hpp"
#include "tests/support/test.hpp"
#include "traces/recorder.hpp"
#include "traces/writer.hpp"

namespace kvscope::gui::test::recall_panel_test {

/// The panel alone, its curves computed.
struct RecallRig : Rig {
  RecallRig() {
    open_pair();
    session().set_parameters("test", [](Parameters& p) { p.budget = 64; });
    app().show_panel_alone("recall");
    settle();
  }
  Panel& panel() { return app().panel("recall"); }
  Index budget() { return session().parameters().budget; }
  std::size_t n_curves() {
    const auto figure = panel().figure();
    if (!figure) return 0;
    std::size_t n = 0;
    for (const plot::Mark& mark : figure->panels.at(0).marks)
      n += std::holds_alternative<plot::Line>(mark);
    return n;
  }
};

TEST_CASE("recall panel: a click on the plot sets the nearest budget, and can be undone") {
  RecallRig rig;
  CHECK(rig.n_curves() == 4);
  rig.click_panel("recall", 0.93f, 0.15f);
  const Index right = rig.budget();
  rig.click_panel("recall", 0.30f, 0.15f);
  const Index left = rig.budget();
  CHECK(left < right);
  const auto ladder = budget_ladder(200);
  for (const Index budget : {left, right})
    CHECK(std::find(ladder.begin(), ladder.end(), budget) != ladder.end());
  rig.session().undo();
  CHECK(rig.budget() != left);
}

TEST_CASE("recall panel: hovering a point shows numbers that the CSV holds; a click takes it") {
  RecallRig rig;
  REQUIRE(rig.panel().figure());
  const ImVec2 at = rig.mark("streamingllm@32", "recall");
  rig.hover(at);
  const auto hover = rig.app().state()["hover"];
  const std::string hovered = hover.dump();
  INFO(hovered);
  REQUIRE(hover.contains("attention mass"));
  CHECK(hover["method"] == "streamingllm");
  CHECK(hover["budget"] == "32 tokens");
  const auto csv = rig.panel().csv();
  REQUIRE(csv);
  bool is_there = false;
  std::istringstream lines(*csv);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(",line,") == std::string::npos) continue;
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
    const std::string shown = fmt::format("{:.6g}", std::stod(cells.at(5)));
    is_there = is_there || hovered.find("\"" + shown + "\"") != std::string::npos;
  }
  CHECK(is_there);
  rig.click(at);
  CHECK(rig.session().selection().selector == "streamingllm");
  CHECK(rig.budget() == 32);
  rig.session().undo();  // one gesture, one step
  CHECK(rig.session().selection().selector == "quoka");
  CHECK(rig.budget() == 64);
}

TEST_CASE("recall panel: ticks add and remove curves, the others stay as they are") {
  RecallRig rig;
  const auto before = rig.panel().csv();
  rig.session().set_ticked("recent", true);
  rig.settle();
  CHECK(rig.n_curves() == 5);
  rig.session().set_ticked("recent", false);
  rig.frame();
  rig.settle();
  CHECK(rig.panel().csv() == before);
  for (const std::string& name : std::vector<std::string>(rig.session().ticked()))
    rig.session().set_ticked(name, false);
  rig.settle();
  CHECK_FALSE(rig.panel().figure());  // "Tick a method"
  // A method that the phase does not know is neither computed nor a failure.
  rig.session().set_ticked("specattn", true);
  rig.settle();
  CHECK_FALSE(rig.panel().figure());
  CHECK_FALSE(rig.panel().is_busy());
}

TEST_CASE("recall panel: the curve of a method with a draft is that of this draft") {
  const testing::TempDir folder;
  const auto other = folder.path() / "other draft.h5";
  std::filesystem::copy_file(embedded_trace(/*draft=*/false), other);
  Rig rig;
  rig.open_pair(/*with_draft=*/true);
  rig.open(other);
  Session& session = rig.session();
  session.select("test", [](Selection& s) { s.trace = 0; });
  for (const std::string& name : std::vector<std::string>(session.ticked()))
    session.set_ticked(name, false);
  session.set_ticked("specattn", true);
  Panel& panel = rig.app().panel("recall");
  panel.set_options(nlohmann::ordered_json::parse(R"({"phase": "decode", "scope": "all layers"})"));
  rig.app().show_panel_alone("recall");
  const auto csv_with = [&](Index draft) {
    session.set_second(draft);
    rig.settle();
    const auto csv = panel.csv();
    REQUIRE(csv);
    return *csv;
  };
  const std::string first = csv_with(1);
  CHECK(csv_with(2) != first);
  CHECK(csv_with(1) == first);
}

/// A recording of two of the draft's query heads.
std::filesystem::path record_two_heads(const std::filesystem::path& folder) {
  const Transformer model = Transformer::load(embedded_draft());
  const Tokenizer tokenizer = Tokenizer::load(embedded_draft());
  ThreadPool pool(2);
  RecordOptions options{.chunk = 32, .q_heads = {0, 1}};
  const auto file = folder / "two heads.h5";
  auto receiver = create_trace(file, {});
  record_trace(model, &tokenizer, std::vector<TokenId>(64, 300), options, *receiver, pool, {});
  return file;
}

TEST_CASE("recall and coverage panels say why a trace with some heads only cannot be replayed") {
  const testing::TempDir folder;
  Rig rig;
  rig.open(record_two_heads(folder.path()));
  for (const char* name : {"recall", "coverage"}) {
    rig.app().show_panel_alone(name);
    rig.settle();
    CHECK_FALSE(rig.app().panel(name).figure());
    CHECK_FALSE(rig.app().panel(name).csv());
    CHECK_FALSE(rig.app().panel(name).is_busy());
    CHECK(rig.backend().n_vertices() > 0);
  }
}

TEST_CASE("recall panel: what is not whole is not taken out of the window, which is said") {
  Rig rig;
  rig.open(embedded_trace(/*draft=*/false, 1500, 0));
  Panel& panel = rig.app().panel("recall");
  rig.app().show_panel_alone("recall");
  rig.settle();
  panel.set_options({{"scope", "all layers"}});
  rig.frame();
  ImGui::SetClipboardText("before");
  const auto said = [&] { return rig.app().state()["flash"].get<std::string>(); };
  const std::pair<int, bool> keys[] = {
      {GLFW_KEY_C, false}, {GLFW_KEY_C, true}, {GLFW_KEY_E, false}};
  for (const auto& [key, shift] : keys) {
    rig.tap(key, /*ctrl=*/true, shift);
    REQUIRE(panel.is_busy());
    CHECK_THAT(said(), ContainsSubstring("Recall against cost is not whole"));
  }
  rig.frame(2);
  CHECK_FALSE(rig.app().state()["landmarks"].contains("export folder"));
  CHECK(std::string(ImGui::GetClipboardText()) == "before");
  rig.settle();
  CHECK(panel.unfinished().empty());
  rig.tap(GLFW_KEY_C, /*ctrl=*/true);
  CHECK(std::string(ImGui::GetClipboardText()) == panel.csv());
  CHECK_THAT(panel.figure()->caption.front(), ContainsSubstring("layers 0 to 7"));
}

TEST_CASE("recall panel: another layer shows the last curves until its own are there") {
  RecallRig rig;
  const auto before = rig.panel().csv();
  rig.session().select("test", [](Selection& s) { s.layer = 5; });
  rig.frame();
  CHECK(rig.panel().figure().has_value());
  CHECK(rig.panel().is_busy());
  rig.settle();
  CHECK(rig.panel().csv() != before);
  CHECK_THAT(rig.panel().figure()->caption.front(), ContainsSubstring("layer 5"));
  // Back again: everything is in the cache.
  rig.session().select("test", [](Selection& s) { s.layer = 0; });
  rig.frame(3);
  rig.settle();
  CHECK(rig.panel().csv() == before);
}

}  // namespace kvscope::gui::test::recall_panel_test
