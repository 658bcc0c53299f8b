// The figures of bounds, from arrays with known numbers: violations are those that the analysis
// stored, whatever the stored bounds look like after rounding.
#include "analysis/base/analysis.hpp"
#include "core/base/progress.hpp"
#include "core/trace/result.hpp"
#include "tests/analysis/figures/drawn.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::bounds_kinds_test {

/// Notes of a panel, joined.
std::string notes_of(const plot::Panel& panel) {
  std::string text;
  for (const auto& mark : panel.marks) {
    if (const auto* note = std::get_if<plot::Note>(&mark)) text += note->text + "\n";
  }
  return text;
}

void begin(MemoryResult& result, const std::string& kind, const std::vector<Index>& heads) {
  testing::begin_result(result, kind);
  write_axis(result, "layer", std::vector<Index>{2}, "1", "layer");
  write_axis(result, "q_head", heads, "1", "query head");
}

TEST_CASE("theorem-b1: violations are the stored flags, bounds near -1 say nothing") {
  MemoryResult result;
  begin(result, "theorem-b1", {0, 1});
  const auto write = [&](const std::string& name, std::vector<float> values) {
    result.declare({name, ResultType::f32, {1, 2, 4}, {"layer", "q_head", "row"}, "1", name});
    result.write<float>(name, 0, values);
  };
  const auto flags = [&](const std::string& name, std::vector<std::uint8_t> values) {
    result.declare({name, ResultType::u8, {1, 2, 4}, {"layer", "q_head", "row"}, "1", name});
    result.write<std::uint8_t>(name, 0, values);
  };
  // Head 0: a bound just above -1, one that is met to the last bit but for rounding, one that is
  // violated, one above 1 and so violated. Head 1: rows that hold.
  write("cos", {0.5f, 0.25f, 0.1f, 0.9f, 0.5f, 0.5f, 0.5f, 0.5f});
  write("bounds/printed", {-0.995f, 0.250002f, 0.4f, 1.5f, -1.0f, -1.0f, 0.0f, 0.1f});
  flags("violated/printed", {0, 0, 1, 1, 0, 0, 0, 0});
  FigureOptions options{.metric = "printed", .heads = "0"};
  const plot::Figure one = testing::drawn(result, "theorem-b1", options);
  REQUIRE(one.panels.size() == 1);
  CHECK_HAS(notes_of(one.panels[0]), "violated: 2 (50%)", "says nothing: 25%", "above 1: 25%");
  options.heads = "";
  const plot::Figure both = testing::drawn(result, "theorem-b1", options);
  CHECK_HAS(notes_of(both.panels[0]), "violated: 2 (25%)");
  CHECK_HAS(notes_of(both.panels[0]), "says nothing: 38%");  // 3 of 8
  REQUIRE_FALSE(both.caption.empty());
  CHECK_HAS(both.caption[0], "n = 8 query rows over 1 layers and 2 heads");
}

TEST_CASE("quest-bounds: violations are the stored flags; the best page's rank adds up") {
  MemoryResult result;
  begin(result, "quest", {0});
  const Shape shape{1, 1, 2, 3};  // two steps, three pages; the first step has two
  const float none = std::numeric_limits<float>::quiet_NaN();
  const auto write = [&](const std::string& name, std::vector<float> values) {
    result.declare({name, ResultType::f32, shape, {"layer", "q_head", "step", "page"}, "1", name});
    result.write<float>(name, 0, values);
  };
  write("true_max", {1.0f, 2.0f, none, 3.0f, 1000.0f, 5.0f});
  write("bound", {0.9995f, 4.0f, none, 2.0f, 999.5f, 6.0f});
  result.declare(
      {"violated", ResultType::u8, shape, {"layer", "q_head", "step", "page"}, "1", "violated"});
  // by more than rounding: 0.9995 under 1 and 2 under 3, but not 999.5 under 1000 of a 16-bit trace
  result.write<std::uint8_t>("violated", 0, std::vector<std::uint8_t>{1, 0, 0, 1, 0, 0});
  result.declare({"best_rank", ResultType::i32, {1, 1, 2}, {"layer", "q_head", "step"}, "1", "r"});
  result.write<std::int32_t>("best_rank", 0, std::vector<std::int32_t>{0, 1});
  const plot::Figure figure = testing::drawn(result, "quest-bounds", {});
  REQUIRE_FALSE(figure.caption.empty());
  CHECK_HAS(figure.caption[0], "n = 5 pages", ", 2 below the true maximum");
  REQUIRE(figure.panels.size() == 2);
  const auto* line = std::get_if<plot::Line>(&figure.panels[1].marks[0]);
  REQUIRE(line != nullptr);
  CHECK(line->x == std::vector<double>{1.0, 2.0, 3.0});  // pages kept
  CHECK(line->y == std::vector<double>{0.5, 1.0, 1.0});  // steps whose best page is among them
}

}  // namespace kvscope::bounds_kinds_test
