// The figures of heads, from a small result whose numbers can be counted.
#include <fmt/format.h>

#include "analysis/figures/figure_kind.hpp"
#include "analysis/kinds/heads.hpp"
#include "tests/analysis/figures/drawn.hpp"
#include "tests/analysis/kit.hpp"

namespace kvscope::head_kinds_test {

using testing::marks_of;

struct Heads {
  Heads() {
    test::PlantOptions plant{.n_tokens = 64};
    const MemoryTrace trace = test::planted_trace(plant);
    HeadsOptions options;
    options.selector = "quest:page-size=4";
    options.budget = "8";
    options.chunk = 32;
    options.cells = 8;
    ThreadPool pool(1);
    analyze_heads(trace, options, result, pool, {}, {});
  }
  plot::Figure drawn(const std::string& name, const FigureOptions& options = {}) const {
    return testing::drawn(result, name, options);
  }
  MemoryResult result;
};

TEST_CASE("heads: each tile is the head's map, upright, with its number") {
  const Heads heads;
  const plot::Figure figure = heads.drawn("heads");
  REQUIRE(figure.panels.size() == 1);
  const auto maps = marks_of<plot::HeatMap>(figure.panels[0]);
  REQUIRE(maps.size() == 1);
  const plot::HeatMap& map = maps[0];
  REQUIRE(map.n_rows == 2 * 9);  // 8 cells and a margin
  REQUIRE(map.n_cols == 4 * 9);
  const auto cells = heads.result.values<float>("map");
  for (Index layer = 0; layer < 2; ++layer) {
    for (Index head = 0; head < 4; ++head) {
      for (Index q = 0; q < 8; ++q) {
        for (Index k = 0; k < 8; ++k) {
          const float expected =
              cells[static_cast<std::size_t>(((layer * 4 + head) * 8 + q) * 8 + k)];
          // layers upwards, queries downwards
          const Index row = layer * 9 + 8 - q;
          const float found = map.values[static_cast<std::size_t>(row * map.n_cols + head * 9 + k)];
          CHECK(((std::isnan(expected) && std::isnan(found)) || expected == found));
        }
      }
    }
  }
  CHECK(marks_of<plot::Note>(figure.panels[0]).size() == 8);
  const auto boxes = marks_of<plot::Boxes>(figure.panels[0]);
  REQUIRE(boxes.size() == 2);
  CHECK(boxes[0].x.size() == 8);
  CHECK(boxes[1].label == "the 5 largest: mean attention distance (tokens)");
}

TEST_CASE("heads-sorted: the largest number comes first and says whose it is") {
  const Heads heads;
  FigureOptions options{.metric = "lost_mass"};
  const plot::Figure figure = heads.drawn("heads-sorted", options);
  const auto lost = heads.result.values<double>("lost_mass");
  const auto most = std::ranges::max_element(lost) - lost.begin();
  const auto notes = marks_of<plot::Note>(figure.panels[0]);
  REQUIRE(notes.size() == 8);
  CHECK(notes[0].text.starts_with(fmt::format("L{} H{}\n", most / 4, most % 4)));
  CHECK_THAT(figure.panels[0].x.label, ContainsSubstring("lost_mass"));
  options.layers = "1";
  CHECK(marks_of<plot::Note>(heads.drawn("heads-sorted", options).panels[0]).size() == 4);
}

TEST_CASE("head-numbers: one map per measure that says something") {
  const Heads heads;
  const plot::Figure all = heads.drawn("head-numbers");
  // distance, entropy, sink, local and the loss; no token repeats and there is no attention sink
  REQUIRE(all.panels.size() == 5);
  CHECK(all.panels[0].title == "Mean attention distance (tokens)");
  CHECK_THAT(all.panels[4].title, ContainsSubstring("Quest"));
  CHECK(all.columns == 3);  // rows that are about equally full
  FigureOptions options{.metric = "entropy"};
  const plot::Figure one = heads.drawn("head-numbers", options);
  REQUIRE(one.panels.size() == 1);
  CHECK(one.span == plot::Span::column);
  const auto maps = marks_of<plot::HeatMap>(one.panels[0]);
  CHECK(maps[0].values[5] == static_cast<float>(heads.result.values<double>("entropy")[5]));
  options.metric = "entropi";
  CHECK_THROWS_WITH(heads.drawn("head-numbers", options),
                    ContainsSubstring("Did you mean entropy?"));
  options.metric = "lost_mass";
  options.selector = "quoka";
  CHECK_THROWS_WITH(heads.drawn("heads", options), ContainsSubstring("quest:page-size=4"));
}

}  // namespace kvscope::head_kinds_test
