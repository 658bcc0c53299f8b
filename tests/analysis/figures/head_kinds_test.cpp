// The figures of heads, from a small result whose numbers can be counted.
#include <fmt/format.h>

#include "analysis/kinds/heads.hpp"
#include "core/trace/result.hpp"
#include "tests/analysis/figures/drawn.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::head_kinds_test {

using testing::marks_of;

struct Heads {
  /// Seed of the text, layers that are shown, methods.
  Heads(std::uint64_t seed, std::vector<Index> layers, const std::string& selector)
      : result(fmt::format("{}.h5", seed)) {
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
  CHECK(notes[0].text.starts_with(fmt::format("{}.{}\n", largest / 4, largest % 4)));
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
    FigureInput input{.results = {&first.result, &other.result},
                      .options = {.metric = "entropy", .match = match}};
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
  CHECK_HAS(placed.panels[0].colour->axis.label, "Entropy (nats): 1.h5 − 2.h5");
  // Heads of a layer find themselves where it is the only one; those of the other, something.
  const plot::Figure matched = drawn(upper, "");
  for (Index head = 0; head < 4; ++head) CHECK(at(matched, 1, head) == 0.0f);
  CHECK_HAS(matched.caption[0], "most alike");
  const plot::Figure same = drawn(first, "maps");
  for (Index head = 0; head < 4; ++head) CHECK(at(same, 0, head) == 0.0f);
  CHECK_SAYS(drawn(upper, "place"), "use maps");
  CHECK_SAYS(drawn(second, "names"), "place or maps");
}

}  // namespace kvscope::head_kinds_test
