// What the side bar says about a trace, and where its grid's cells lie.
#include "gui/model/traces/trace_facts.hpp"
#include "core/trace/result.hpp"

#include <catch2/catch_test_macros.hpp>

#include "core/trace/memory_trace.hpp"
#include "tests/gui_model/trace_files.hpp"

namespace kvscope::gui::test::trace_facts_test {

/// The value of a fact; "-" if it is not there.
std::string fact(const std::vector<FactSection>& sections, const std::string& name) {
  for (const FactSection& section : sections) {
    for (const Fact& fact : section.facts) {
      if (fact.name == name) return fact.value;
    }
  }
  return "-";
}

/// A text fits if it has at most n characters.
auto at_most(std::size_t n) {
  return [n](std::string_view text) {
    std::size_t count = 0;
    for (const char c : text) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
    return count <= n;
  };
}

TEST_CASE("facts of a whole trace") {
  const TempFolder folder;
  Cache cache(1 << 20);
  const auto document = open_document(write_trace(folder / "a.h5", make_trace({})), cache);
  const auto facts = trace_facts(*document);
  REQUIRE(facts.size() == 3);
  CHECK(fact(facts, "family") == "llama");
  CHECK(fact(facts, "layers") == "3");
  CHECK(fact(facts, "heads") == "4 query, 2 key/value");
  CHECK(fact(facts, "rotary") == "default, theta 10000");
  CHECK(fact(facts, "window") == "6 tokens in 1 of 3 layers");
  CHECK(fact(facts, "sinks") == "-");
  CHECK(fact(facts, "experts") == "-");
  CHECK(fact(facts, "status") == "complete");
  CHECK(fact(facts, "tokens") == "24");
  CHECK(fact(facts, "prompt") == "21 in chunks of 8");
  CHECK(fact(facts, "decoded") == "3");
  CHECK(fact(facts, "captured") == "q, k, v, lse");
  CHECK(fact(facts, "layers kept") == "-");
  CHECK(fact(facts, "command") == document->info().command_line);
  CHECK(fact(facts, "uuid") == document->info().uuid);
  CHECK(fact(facts, "content") == document->info().content_hash);
  CHECK(fact(facts, "text") == "-");
  CHECK(trace_summary(*document) == "synthetic · 24 tokens · complete");
}

TEST_CASE("facts of a trace that was cut, and that keeps only some layers and heads") {
  const TempFolder folder;
  Cache cache(1 << 20);
  Plan plan;
  plan.layers = {0, 2};
  plan.q_heads = {2, 3};
  plan.kv_heads = {1};
  plan.rows = {10, 24};
  plan.with_text = false;
  const auto document = open_document(write_part(folder / "a.h5", make_trace(plan), 2), cache);
  const auto facts = trace_facts(*document);
  CHECK(fact(facts, "status") == "recording: 2 of 6 chunks and steps");
  CHECK(fact(facts, "tokens") == "16");
  CHECK(fact(facts, "layers kept") == "0, 2");
  CHECK(fact(facts, "heads kept") == "2-3");
  CHECK(fact(facts, "queries kept") == "10 to 15");
  CHECK(fact(facts, "text") == "not recorded: tokens show as ids");
}

TEST_CASE("indices in ranges") {
  CHECK(index_ranges({}) == "");
  CHECK(index_ranges({4}) == "4");
  CHECK(index_ranges({0, 1, 2, 5, 7, 8}) == "0-2, 5, 7-8");
}

TEST_CASE("long names are shortened in the middle, between characters, as little as needed") {
  CHECK(shortened_middle("short.h5", at_most(8)) == "short.h5");
  CHECK(shortened_middle("a-rather-long-name.h5", at_most(11)) == "a-rat…me.h5");
  CHECK(shortened_middle("éééééééééé", at_most(5)) == "éé…éé");
  CHECK(shortened_middle("abc", at_most(1)) == "…");
  CHECK(shortened_middle("abc", at_most(0)) == "…");
  CHECK(shortened_middle("", at_most(0)) == "");
}

TEST_CASE("the grid marks kinds of layers and what was recorded") {
  TraceInfo info = make_trace_info(3, 6, 2, 4, 8, 4);
  info.window = {std::nullopt, 16, 16};
  info.layer_kinds = {{true, 0}, {true, 8}, {false, 0}};
  info.n_experts_per_token = 2;
  info.layers = {0, 2};
  info.q_heads = {3, 4, 5};
  const HeadGrid grid = head_grid(info);
  REQUIRE(grid.layers.size() == 3);
  CHECK(grid.group == 3);
  CHECK(grid.layers[0].marks.empty());
  CHECK(grid.layers[1].marks == "we");
  CHECK(grid.layers[2].marks == "wn");
  CHECK(grid.layers[1].words ==
        std::vector<std::string>{"sliding window of 16 tokens", "8 experts, 2 per token"});
  CHECK(grid.layers[0].words == std::vector<std::string>{"full attention", "dense MLP"});
  CHECK(grid.legend.size() == 3);
  CHECK(grid.is_recorded(0, 3));
  CHECK_FALSE(grid.is_recorded(1, 3));
  CHECK_FALSE(grid.is_recorded(0, 2));
  CHECK_FALSE(grid.is_recorded(7, 3));
  CHECK_FALSE(grid.is_recorded(0, 99));
}

TEST_CASE("every cell of the grid is found where it lies, and nothing outside") {
  for (const auto& [n_q, n_kv] : {std::pair<Index, Index>{8, 2}, {4, 4}, {1, 1}, {64, 8}}) {
    const HeadGrid grid = head_grid(make_trace_info(5, n_q, n_kv, 4, 8, 4));
    const GridPlan plan = plan_grid(grid, 220, 20, 14, 3, 14);
    CHECK(plan.cell >= 3);
    CHECK(plan.cell <= 14);
    for (Index layer = 0; layer < 5; ++layer) {
      for (Index head = 0; head < n_q; ++head) {
        const auto hit = cell_at(grid, plan, plan.x_of(head, grid.group) + 0.5f * plan.cell,
                                 plan.y_of(layer) + 0.5f * plan.row);
        REQUIRE(hit);
        CHECK(*hit == std::pair{layer, head});
      }
    }
    CHECK(plan.y_of(4) == 0.0f);  // the first layer is the lowest, as in figures
    CHECK_FALSE(cell_at(grid, plan, plan.label - 1, 1));
    CHECK_FALSE(cell_at(grid, plan, plan.width + 1, 1));
    CHECK_FALSE(cell_at(grid, plan, plan.label + 1, 5 * plan.row + 1));
    CHECK_FALSE(cell_at(grid, plan, plan.label + 1, -1));
  }
}

TEST_CASE("the grid fits its room until cells are as small as they may be") {
  const HeadGrid small = head_grid(make_trace_info(2, 32, 8, 4, 8, 4));
  CHECK(plan_grid(small, 220, 20, 14, 2, 14).width <= 220 - 14);
  const HeadGrid wide = head_grid(make_trace_info(2, 128, 8, 4, 8, 4));
  CHECK(plan_grid(wide, 220, 20, 14, 3, 14).cell == 3);
  CHECK(plan_grid(wide, 220, 20, 14, 3, 14).width > 220);
}

}  // namespace kvscope::gui::test::trace_facts_test
