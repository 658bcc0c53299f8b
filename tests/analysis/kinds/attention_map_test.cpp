// The pooled attention map of one head against three loops.
#include "analysis/kinds/attention_map.hpp"

#include "core/trace/result.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::attention_map_test {

TEST_CASE("attention-map: cells are maxima or means of exact weights") {
  test::PlantOptions plant{.n_tokens = 53, .sink = 1.0, .has_sink_logits = GENERATE(false, true)};
  plant.score_cap = plant.has_sink_logits ? 2.5 : 0.0;
  const MemoryTrace trace =
      test::planted_trace(plant, [](TraceInfo& info) { info.window[1] = 20; });
  AttentionMapOptions options{.layer = GENERATE(0, 1), .head = 3};
  options.max_cells = 16;  // blocks of 4
  options.pooling = GENERATE(MapPooling::max, MapPooling::mean);
  MemoryResult result;
  ThreadPool pool(1);
  const auto summary = analyze_attention_map(trace, options, {result, pool});
  REQUIRE(summary["block"] == 4);
  REQUIRE(summary["cells"] == 14);

  std::vector<double> largest(14 * 14, 0.0), sum(14 * 14, 0.0), count(14 * 14, 0.0);
  for (Index pos = 0; pos < plant.n_tokens; ++pos) {
    const auto row = test::naive_row(trace, options.layer, options.head, pos);
    const Index first = test::naive_first_visible(trace, options.layer, pos);
    for (std::size_t t = 0; t < row.size(); ++t) {
      const auto cell =
          static_cast<std::size_t>(pos / 4 * 14 + (first + static_cast<Index>(t)) / 4);
      largest[cell] = std::max(largest[cell], row[t]);
      sum[cell] += row[t];
      count[cell] += 1.0;
    }
  }
  const auto map = result.values<float>("map");
  REQUIRE(map.size() == largest.size());
  for (std::size_t cell = 0; cell < map.size(); ++cell) {
    INFO(cell);
    if (count[cell] == 0.0) {
      CHECK(std::isnan(map[cell]));
    } else if (options.pooling == MapPooling::max) {
      CHECK(map[cell] == Catch::Approx(largest[cell]));
    } else {
      CHECK(map[cell] == Catch::Approx(sum[cell] / count[cell]));
    }
  }
  options.head = 9;
  CHECK_THROWS_AS(analyze_attention_map(trace, options, {result, pool}), ConfigError);
}

}  // namespace kvscope::attention_map_test
