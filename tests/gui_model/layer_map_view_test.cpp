// The layer map between two traces: equal to the command line's analysis, and the sentences for
// traces that cannot be compared.
#include "gui/model/bounds/layer_map_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "core/base/error.hpp"
#include "tests/gui_model/job_context.hpp"
#include "tests/support/planted_trace.hpp"

namespace kvscope::gui::test::layer_map_view_test {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
using kvscope::test::planted_trace;
using kvscope::test::PlantOptions;

MemoryTrace model(Index n_layers, std::uint64_t seed, Index n_tokens = 48) {
  PlantOptions plant{.n_layers = n_layers, .n_tokens = n_tokens, .sink = 1.5, .seed = seed};
  return planted_trace(plant);
}

TEST_CASE("layer map view: cells are the divergences, by loops", "[layer_map_view]") {
  const MemoryTrace verifier = model(4, 1);
  const MemoryTrace draft = model(2, 2);
  LayerMapOptions options{.row_choice = RowChoice::all};
  TestJob job;
  const LayerMap map = layer_map(verifier, draft, options, job.context);
  REQUIRE(map.cells.size() == 8);
  CHECK(map.total("tokens") == 48);
  CHECK(map.total("rows") == 48 - 15);
  const auto mean_row = [](const TraceSource& trace, Index layer, Index pos) {
    std::vector<double> row(static_cast<std::size_t>(pos + 1), 0.0);
    for (Index head = 0; head < 4; ++head) {
      const auto p = kvscope::test::naive_row(trace, layer, head, pos);
      for (std::size_t t = 0; t < row.size(); ++t) row[t] += p[t] / 4.0;
    }
    return row;
  };
  for (Index i = 0; i < 2; ++i) {
    for (Index j = 0; j < 4; ++j) {
      double kl = 0.0, variation = 0.0;
      for (Index pos = 15; pos < 48; ++pos) {
        const auto p = mean_row(verifier, j, pos);
        const auto q = mean_row(draft, i, pos);
        for (std::size_t t = 0; t < p.size(); ++t) {
          kl += p[t] * std::log(p[t] / q[t]) / 33.0;
          variation += 0.5 * std::abs(p[t] - q[t]) / 33.0;
        }
      }
      const LayerMapCell* cell = map.cell(i, j);
      REQUIRE(cell != nullptr);
      CHECK(cell->draft_layer == i);
      CHECK(cell->verifier_layer == j);
      CHECK(cell->kl == Approx(kl));
      CHECK(cell->total_variation == Approx(variation));
    }
  }
  CHECK(map.cell(2, 0) == nullptr);
  CHECK(map.cell(0, 4) == nullptr);
  CHECK(map.cell(-1, 0) == nullptr);
}

TEST_CASE("layer map view: one mapped and one least cell per column; costs are their sums",
          "[layer_map_view]") {
  const MemoryTrace verifier = model(5, 3);
  const MemoryTrace draft = model(3, 4);
  LayerMapOptions options{.dense_layers = GENERATE(0, 2)};
  TestJob job;
  const LayerMap map = layer_map(verifier, draft, options, job.context);
  double monotone = 0.0, least = 0.0;
  Index last = 0;
  for (Index layer = 0; layer < 5; ++layer) {
    const auto n_least = std::count_if(map.cells.begin(), map.cells.end(), [&](const auto& c) {
      return c.verifier_layer == layer && c.is_least;
    });
    CHECK(n_least == 1);
    const LayerMapCell* mapped = map.mapped(layer);
    if (layer < options.dense_layers) {
      CHECK(mapped == nullptr);
      continue;
    }
    REQUIRE(mapped != nullptr);
    CHECK(mapped->draft_layer >= last);
    last = mapped->draft_layer;
    monotone += mapped->kl;
    double smallest = 1e300;
    for (Index i = 0; i < 3; ++i) smallest = std::min(smallest, map.cell(i, layer)->kl);
    least += smallest;
  }
  CHECK(map.total("monotone_cost") == Approx(monotone));
  CHECK(map.total("argmax_cost") == Approx(least));
  CHECK(map.mapped(99) == nullptr);
}

TEST_CASE("layer map view: the figure and the CSV hold the cells", "[layer_map_view]") {
  const MemoryTrace verifier = model(3, 5);
  const MemoryTrace draft = model(2, 6);
  TestJob job;
  const LayerMap map = layer_map(verifier, draft, {}, job.context);
  const auto metric =
      GENERATE(LayerMapMetric::kl, LayerMapMetric::total_variation, LayerMapMetric::pinsker_floor);
  const plot::Figure figure = layer_map_figure(map, metric);
  const auto& heat = std::get<plot::HeatMap>(figure.panels[0].marks[0]);
  REQUIRE(heat.values.size() == map.cells.size());
  for (std::size_t i = 0; i < heat.values.size(); ++i) {
    const LayerMapCell& c = map.cells[i];
    const double value = metric == LayerMapMetric::kl                ? c.kl
                         : metric == LayerMapMetric::total_variation ? c.total_variation
                                                                     : c.pinsker_floor;
    CHECK(heat.values[i] == static_cast<float>(value));
  }
  CHECK_THAT(figure.caption.back(), ContainsSubstring("48 tokens"));
  const std::string csv = layer_map_csv(map);
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 7);
  CHECK_THAT(csv, ContainsSubstring(fmt::format("1,2,{:.17g}", map.cell(1, 2)->kl)));
}

TEST_CASE("layer map view: traces of other tokens get a sentence with the way out",
          "[layer_map_view]") {
  const MemoryTrace verifier = model(3, 1, 48);
  LayerMapOptions options;
  SECTION("the same tokens") {
    CHECK_FALSE(layer_map_obstacle(verifier, model(2, 2, 48), options));
  }
  SECTION("a longer trace of the same text") {
    const MemoryTrace draft = model(2, 2, 64);
    const auto obstacle = layer_map_obstacle(verifier, draft, options);
    REQUIRE(obstacle);
    CHECK(obstacle->prefix_helps);
    CHECK_THAT(obstacle->sentence, ContainsSubstring("48") && ContainsSubstring("64"));
    options.token_match = TokenMatch::common_prefix;
    CHECK_FALSE(layer_map_obstacle(verifier, draft, options));
    TestJob job;
    CHECK(layer_map(verifier, draft, options, job.context).total("tokens") == 48);
  }
  SECTION("another text") {
    MemoryTrace draft = model(2, 2, 48);
    const Index at = GENERATE(0, 20);
    std::vector<TokenId> ids(draft.tokens().begin(), draft.tokens().end());
    ids[at] = 999;
    draft.set_tokens(ids);
    const auto obstacle = layer_map_obstacle(verifier, draft, options);
    REQUIRE(obstacle);
    CHECK(obstacle->prefix_helps == (at == 20));
    CHECK_THAT(obstacle->sentence,
               ContainsSubstring(fmt::format("position {}", at)) && ContainsSubstring("id 999"));
    options.token_match = TokenMatch::common_prefix;
    CHECK(layer_map_obstacle(verifier, draft, options).has_value() == (at == 0));
  }
}

}  // namespace kvscope::gui::test::layer_map_view_test
