// The figures of heads, from a small result whose numbers can be counted.
#include <fmt/format.h>

#include "analysis/figures/head_atlas.hpp"
#include "analysis/kinds/heads.hpp"
#include "analysis/kinds/overlap.hpp"
#include "analysis/plot/draw.hpp"
#include "analysis/plot/recording_canvas.hpp"
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

TEST_CASE("heads: many layers of few heads stand in blocks beside each other") {
  const MemoryTrace trace =
      test::planted_trace({.n_layers = 13, .n_q = 2, .n_kv = 1, .n_tokens = 32});
  MemoryResult result;
  HeadsOptions options;
  options.cells = 4;
  ThreadPool pool(1);
  analyze_heads(trace, options, {result, pool});
  const plot::Figure figure = testing::drawn(result, "heads");
  const plot::Panel& panel = figure.panels[0];
  // One block would be 13 high and 2 wide; two are 7 and 5.
  CHECK(panel.aspect == 7.0 / 5.0);
  CHECK(figure.span == plot::Span::full);
  REQUIRE(panel.y.ticks.size() == 7);
  CHECK(panel.y.ticks[6].label == "6");
  REQUIRE(panel.x.ticks.size() == 4);
  CHECK(panel.x.ticks[2].at == 3.5);
  CHECK(panel.x.ticks[2].label == "0");
  std::vector<std::string> names;
  for (const plot::Note& note : marks_of<plot::Note>(panel)) names.push_back(note.text);
  CHECK(std::ranges::count(names, "12") >= 1);
  CHECK(names.size() == 26 + 6);  // a number for each head, a name for each layer of the second
  const MemoryResultView view(result, "a.h5");
  FigureInput input{.results = {&view}};
  const auto tiles = figures::head_tiles(input, figures::AtlasOrder::as_in_model);
  REQUIRE(tiles.size() == 26);
  CHECK(tiles[25].column == 4);
  CHECK(tiles[25].row == 5);
  // Layers and heads that are chosen make their own blocks.
  CHECK(testing::drawn(result, "heads", FigureOptions{.layers = "0-3"}).panels[0].aspect <= 1.4);
}

TEST_CASE("heads: a number that has no room in its tile is left out") {
  const MemoryTrace trace = test::planted_trace({.n_q = 16, .n_tokens = 32});
  MemoryResult result;
  HeadsOptions options;
  options.cells = 4;
  ThreadPool pool(1);
  analyze_heads(trace, options, {result, pool});
  const plot::Figure figure = testing::drawn(result, "heads", {.metric = "entropy"});
  const auto notes = marks_of<plot::Note>(figure.panels[0]);
  REQUIRE(notes.size() == 32);
  const auto n_drawn = [&](double width) {
    plot::RecordingCanvas canvas;
    const plot::Theme theme = plot::make_theme(plot::Venue::acl, plot::Ground::light);
    plot::draw_figure(figure, plot::layout_figure(figure, width, {}, theme, canvas.metrics()),
                      theme, canvas);
    return std::ranges::count_if(notes, [&](const plot::Note& note) {
      return canvas.log().find("\"" + note.text + "\"") != std::string::npos;
    });
  };
  CHECK(n_drawn(1600.0) == 32);
  CHECK(n_drawn(200.0) == 0);
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
  CHECK_HAS(figure.panels[0].x.label, "lost_mass");
  options.layers = "1";
  CHECK(marks_of<plot::Note>(heads.drawn("heads-sorted", options).panels[0]).size() == 4);
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

TEST_CASE("head-numbers: one map per measure that says something") {
  const Heads heads;
  const plot::Figure all = heads.drawn("head-numbers");
  // distance, entropy, sink, local and the loss; no token repeats and there is no attention sink
  REQUIRE(all.panels.size() == 5);
  CHECK(all.panels[0].title == "Mean attention distance (tokens)");
  CHECK_HAS(all.panels[4].title, "Quest");
  CHECK(all.columns == 3);  // rows that are about equally full
  FigureOptions options{.metric = "entropy"};
  const plot::Figure one = heads.drawn("head-numbers", options);
  REQUIRE(one.panels.size() == 1);
  CHECK(one.span == plot::Span::column);
  const auto maps = marks_of<plot::HeatMap>(one.panels[0]);
  CHECK(maps[0].values[5] == static_cast<float>(heads.result.values<double>("entropy")[5]));
  options.metric = "entropi";
  CHECK_SAYS(heads.drawn("head-numbers", options), "Did you mean entropy?");
  options.metric = "lost_mass";
  options.selector = "quoka";
  CHECK_SAYS(heads.drawn("heads", options), "quest:page-size=4");
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
