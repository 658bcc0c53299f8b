// The figures of heads, from a small result whose numbers can be counted.
#include <fmt/format.h>

#include "analysis/kinds/heads.hpp"
#include "analysis/kinds/overlap.hpp"
#include "tests/analysis/figures/drawn.hpp"
#include "tests/analysis/kit.hpp"

namespace kvscope::head_kinds_test {

using testing::marks_of;

struct Heads {
  Heads() {
    const MemoryTrace trace = test::planted_trace(test::PlantOptions{.n_tokens = 64});
    HeadsOptions options;
    options.selector = "quest:page-size=4";
    options.budget = "8";
    options.chunk = 32;
    options.cells = 8;
    ThreadPool pool(1);
    analyze_heads(trace, options, {result, pool});
  }
  /// Another analysis: seed of the text, layers that are shown, methods.
  Heads(std::uint64_t seed, std::vector<Index> layers, const std::string& selector) {
    const MemoryTrace trace = test::planted_trace(test::PlantOptions{.n_tokens = 64, .seed = seed});
    HeadsOptions options;
    options.selector = selector;
    options.budget = "8";
    options.chunk = 32;
    options.cells = 8;
    options.selection.layers = std::move(layers);
    ThreadPool pool(1);
    analyze_heads(trace, options, {result, pool});
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
          const float expected = cells[((layer * 4 + head) * 8 + q) * 8 + k];
          // layers upwards, queries downwards
          const Index row = layer * 9 + 8 - q;
          const float found = map.values[row * map.n_cols + head * 9 + k];
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

TEST_CASE("heads against: what one method loses more than another, zero in the middle") {
  const Heads heads(1, {}, "quoka,quest:page-size=4");
  FigureOptions options{.selector = "quoka", .against = "quest:page-size=4"};
  const plot::Figure figure = heads.drawn("heads", options);
  const auto lost = heads.result.values<double>("lost_mass");  // [layer, head, method]
  const plot::Panel& panel = figure.panels[0];
  const auto maps = marks_of<plot::HeatMap>(panel);
  REQUIRE(maps.size() == 1);
  double widest = 0.0;
  for (std::size_t head = 0; head < 8; ++head) {
    const double value = lost[2 * head] - lost[2 * head + 1];
    widest = std::max(widest, std::abs(value));
    const auto row = static_cast<Index>(head / 4) * 10 + 4;
    const auto column = static_cast<Index>(head % 4) * 10 + 2;
    CHECK(maps[0].values[row * maps[0].n_cols + column] == static_cast<float>(value));
  }
  REQUIRE(widest > 0.0);
  REQUIRE(panel.colour);
  CHECK(panel.colour->map == plot::ColourMap::diverging);
  CHECK(panel.colour->axis.range->low == -widest);
  CHECK(panel.colour->axis.range->high == widest);
  CHECK_HAS(panel.colour->axis.label, "Lost under QuoKA", "− Quest");
  // The largest difference first, whatever its sign.
  const plot::Figure sorted = heads.drawn("heads-sorted", options);
  const auto notes = marks_of<plot::Note>(sorted.panels[0]);
  const auto most = [&](std::size_t head) { return std::abs(lost[2 * head] - lost[2 * head + 1]); };
  std::size_t largest = 0;
  for (std::size_t head = 1; head < 8; ++head)
    largest = most(head) > most(largest) ? head : largest;
  CHECK(notes[0].text.starts_with(fmt::format("L{} H{}\n", largest / 4, largest % 4)));
  options.metric = "distance";
  CHECK_SAYS(heads.drawn("heads", options), "lost_mass alone");
  options.metric.clear();
  options.against = "quokka";
  CHECK_SAYS(heads.drawn("heads", options), "against: there is no quokka");
  options.against = "quest:page-size=4";
  options.match = "maps";
  CHECK_SAYS(heads.drawn("heads", options), "leave it out");
}

TEST_CASE("heads of two results: by place, or by the most similar map") {
  const Heads first(1, {}, "");
  const Heads second(2, {}, "");
  const Heads upper(1, {1}, "");  // of the first, its upper layer alone
  const auto drawn = [&](const Heads& other, const std::string& match) {
    const MemoryResultView a(first.result, "a.h5");
    const MemoryResultView b(other.result, "b.h5");
    FigureInput input{.results = {&a, &b}, .options = {.metric = "entropy", .match = match}};
    return make_figure(find_figure_kind("heads"), input);
  };
  const auto at = [](const plot::Figure& figure, Index layer, Index head) {
    const auto map = marks_of<plot::HeatMap>(figure.panels[0])[0];
    return map.values[(layer * 10 + 4) * map.n_cols + head * 10 + 2];
  };
  const auto mine = first.result.values<double>("entropy");
  const auto other = second.result.values<double>("entropy");
  const plot::Figure placed = drawn(second, "");
  CHECK(at(placed, 1, 2) == static_cast<float>(mine[6] - other[6]));
  CHECK_HAS(placed.panels[0].colour->axis.label, "Entropy (nats): a.h5 − b.h5");
  // Heads of a layer find themselves where it is the only one; those of the other, something.
  const plot::Figure matched = drawn(upper, "");
  for (Index head = 0; head < 4; ++head) CHECK(at(matched, 1, head) == 0.0f);
  CHECK_HAS(matched.caption[0], "most alike");
  const plot::Figure same = drawn(first, "maps");
  for (Index head = 0; head < 4; ++head) CHECK(at(same, 0, head) == 0.0f);
  CHECK_SAYS(drawn(upper, "place"), "use maps");
  CHECK_SAYS(drawn(second, "names"), "place or maps");
}

TEST_CASE("heads with an overlap: who keeps what the other drops, as analyze overlap has it") {
  const Heads heads(1, {}, "quoka,quest:page-size=4");
  const MemoryTrace trace = test::planted_trace({.n_tokens = 64});
  OverlapOptions options;
  options.selector = "streamingllm,quoka,quest:page-size=4";
  options.budget = "8";
  options.chunk = 32;
  options.selection.layers = {1};  // layer 0 of the atlas has no number
  MemoryResult overlap;
  ThreadPool pool(1);
  analyze_overlap(trace, options, {overlap, pool});
  const std::size_t n_couples = overlap.summary()["couples"].size();
  const auto drawn = [&](const FigureOptions& choice) {
    const MemoryResultView first(heads.result, "heads.h5");
    const MemoryResultView second(overlap, "overlap.h5");
    return make_figure(find_figure_kind("heads"), {{&first, &second}, choice});
  };
  const auto number = [&](const plot::Figure& figure, std::size_t head) {  // of layer 1
    const auto map = marks_of<plot::HeatMap>(figure.panels[0]).at(0);
    const auto row = static_cast<Index>(10 + 4);
    return map.values[static_cast<std::size_t>(row * map.n_cols) + head * 10 + 2];
  };
  FigureOptions choice{.metric = "first_mass", .selector = "quoka", .against = "quest:page-size=4"};
  std::size_t couple = 0;
  while (overlap.summary()["couples"][couple]["first"] != "quoka" ||
         overlap.summary()["couples"][couple]["second"] != "quest:page-size=4")
    ++couple;
  const plot::Figure quoka_alone = drawn(choice);
  CHECK_HAS(quoka_alone.caption[0], "only QuoKA keeps, of QuoKA and Quest");
  std::swap(choice.selector, choice.against);
  choice.metric = "second_mass";
  const plot::Figure other_way = drawn(choice);
  const plot::Figure jaccard = drawn({.selector = "quest:page-size=4", .against = "quoka"});
  for (std::size_t head = 0; head < 4; ++head) {
    const std::size_t at = head * n_couples + couple;
    CHECK(number(quoka_alone, head) == overlap.values<float>("first_mass")[at]);
    CHECK(number(other_way, head) == number(quoka_alone, head));
    CHECK(number(jaccard, head) == overlap.values<float>("jaccard")[at]);
  }
  CHECK(std::isnan(marks_of<plot::HeatMap>(jaccard.panels[0])[0].values[42]));
  choice = {.selector = "h2o"};
  CHECK_SAYS(drawn(choice), "compares no h2o with another", "streamingllm and quoka");
  CHECK_SAYS(drawn({.metric = "distance"}), "jaccard");
}

}  // namespace kvscope::head_kinds_test
