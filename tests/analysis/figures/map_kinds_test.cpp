// What the figures of maps and clouds draw (geometry, coverage-pages, attention-map), number by
// number, from small results.
#include "tests/analysis/figures/drawn.hpp"
#include "tests/analysis/kit.hpp"

namespace kvscope::map_kinds_test {

using testing::begin_result;
using testing::drawn;
using testing::mark_of;
using testing::put;

constexpr float kHidden = std::numeric_limits<float>::quiet_NaN();

/// Equal, and NaN where NaN is expected.
bool same(const std::vector<float>& found, const std::vector<float>& expected) {
  if (found.size() != expected.size()) return false;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(expected[i]) ? !std::isnan(found[i]) : found[i] != expected[i]) return false;
  }
  return true;
}

/// Layers 3 and 4, 4 query heads on 2 KV heads, bases per KV head, 2 shown positions, 3 components.
/// Each number is its own index, so that a wrong layer, head or component shows.
MemoryResult geometry_result() {
  MemoryResult result;
  begin_result(result, "geometry");
  write_axis(result, "layer", std::vector<Index>{3, 4}, "1", "layer");
  write_axis(result, "q_head", std::vector<Index>{0, 1, 2, 3}, "1", "query head");
  write_axis(result, "kv_head", std::vector<Index>{0, 1}, "1", "KV head");
  write_axis(result, "basis_head", std::vector<Index>{0, 1}, "1", "head of the basis");
  const auto counted = [](std::size_t n, float step) {
    std::vector<float> values(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = step * static_cast<float>(i);
    return values;
  };
  put(result, "queries/projection", {2, 4, 2, 3}, {"layer", "q_head", "pos", "shown"},
      counted(48, 1.0f));
  put(result, "keys/projection", {2, 2, 2, 3}, {"layer", "basis", "pos", "shown"},
      counted(24, 0.5f));
  put(result, "queries/s_q", {2, 4, 2}, {"layer", "q_head", "pos"}, counted(16, 0.01f));
  put(result, "explained", {2, 2, 3}, {"layer", "basis", "component"},
      std::vector<float>{0.1f, 0.1f, 0.1f, 0.2f, 0.1f, 0.1f, 0.3f, 0.1f, 0.1f, 0.5f, 0.25f, 0.1f});
  return result;
}

TEST_CASE("geometry: the clouds of one head, its mean query and the axes' variance") {
  const MemoryResult result = geometry_result();
  const plot::Figure figure = drawn(result, "geometry", {.layers = "4", .heads = "2"});
  REQUIRE(figure.panels.size() == 1);
  const plot::Panel& panel = figure.panels[0];
  // Layer 4 is the second; query head 2 lies on KV head 1, whose basis it shares.
  const auto& keys = mark_of<plot::Scatter>(panel, 0);
  CHECK(keys.x == std::vector<double>{9.0, 10.5});
  CHECK(keys.y == std::vector<double>{9.5, 11.0});
  const auto& queries = mark_of<plot::Scatter>(panel, 1);
  CHECK(queries.x == std::vector<double>{36.0, 39.0});
  CHECK(queries.y == std::vector<double>{37.0, 40.0});
  REQUIRE(queries.value.size() == 2);
  CHECK(queries.value[0] == Approx(0.12));
  CHECK(queries.value[1] == Approx(0.13));
  const auto& mean = mark_of<plot::Scatter>(panel, 2);
  CHECK(mean.x == std::vector<double>{37.5});
  CHECK(mean.y == std::vector<double>{38.5});
  CHECK(panel.x.label == "PC1 (50% of the variance)");
  CHECK(panel.y.label == "PC2 (25% of the variance)");
  CHECK_HAS(figure.caption.at(0),
            "Layer 4, query head 2 and its KV head 1: n = 2 queries and 2 keys");
  CHECK_THROWS_AS(drawn(result, "geometry", {.layers = "5"}), ConfigError);
  // Unasked: the clouds that lie farthest apart, here those with the largest numbers.
  const plot::Figure best = drawn(result, "geometry");
  CHECK_HAS(best.caption.at(0), "Layer 4, query head 3");
  CHECK_HAS(testing::caption_of(best), "farthest apart");
}

TEST_CASE("coverage-pages: the layer's attention, and what each pair keeps of it") {
  MemoryResult result;
  begin_result(result, "coverage");
  write_axis(result, "layer", std::vector<Index>{0, 7}, "1", "layer");
  write_axis(result, "block", std::vector<Index>{0, 128}, "token", "query block");
  write_axis(result, "page", std::vector<Index>{0, 16, 32}, "token", "page");
  const std::vector<float> of_layer_7 = {0.5f, kHidden, kHidden, 0.25f, 0.125f, 0.0625f};
  std::vector<float> mass(6, 1.0f);
  mass.insert(mass.end(), of_layer_7.begin(), of_layer_7.end());
  put(result, "map_mass", {2, 2, 3}, {"layer", "block", "page"}, mass);
  const std::vector<std::string> dims = {"layer", "pair", "block", "page"};
  std::vector<float> kept(24);
  std::vector<float> selected(24);
  for (std::size_t i = 0; i < 24; ++i) {
    kept[i] = static_cast<float>(i) / 64.0f;
    selected[i] = static_cast<float>(i) / 32.0f;
  }
  kept[13] = 0.0f;
  put(result, "map_kept", {2, 2, 2, 3}, dims, kept);
  put(result, "map_selected", {2, 2, 2, 3}, dims, selected);
  result.finish({{"pairs", {"quest tokens=64", "quoka tokens=64"}}});
  FigureOptions options{.layers = "7"};
  plot::Figure figure = drawn(result, "coverage-pages", options);
  REQUIRE(figure.panels.size() == 3);
  const auto& attention = mark_of<plot::HeatMap>(figure.panels[0]);
  CHECK(same(attention.values, of_layer_7));
  CHECK((attention.n_rows == 2 && attention.n_cols == 3));
  CHECK((attention.x.low == 0.0 && attention.x.high == 48.0));   // to the end of the last page
  CHECK((attention.y.low == 0.0 && attention.y.high == 256.0));  // and of the last block
  REQUIRE(figure.panels[0].colour);
  CHECK(figure.panels[0].colour->axis.range->high == Approx(0.5));  // the largest page
  CHECK(figure.panels[0].colour->axis.range->low == Approx(0.5e-4));
  kept[13] = kHidden;  // nothing kept is drawn as nothing
  CHECK(same(mark_of<plot::HeatMap>(figure.panels[1]).values,
             std::vector<float>(kept.begin() + 12, kept.begin() + 18)));
  CHECK(same(mark_of<plot::HeatMap>(figure.panels[2]).values,
             std::vector<float>(kept.begin() + 18, kept.end())));

  options.metric = "selected";
  options.selector = "quoka";
  figure = drawn(result, "coverage-pages", options);
  REQUIRE(figure.panels.size() == 2);
  CHECK_HAS(figure.panels[1].title, "QuoKA");
  CHECK(same(mark_of<plot::HeatMap>(figure.panels[1]).values,
             std::vector<float>(selected.begin() + 18, selected.end())));
  CHECK(figure.panels[1].colour->axis.range->high == 1.0);
}

TEST_CASE("attention-map: the weights as stored; beside them the cells that QuoKA keeps") {
  // 7 tokens in blocks of 2, chunks from 0 and 4.
  MemoryResult map;
  begin_result(map, "attention-map");
  std::vector<float> weights;
  for (Index q = 0; q < 4; ++q) {
    for (Index k = 0; k < 4; ++k)
      weights.push_back(k > q ? kHidden : 0.01f * static_cast<float>(4 * q + k + 1));
  }
  put(map, "map", {4, 4}, {"query_block", "key_block"}, weights);
  map.finish({{"layer", 2}, {"head", 1}, {"tokens", 7}, {"block", 2}, {"pooling", "max"}});
  MemoryResult quoka;
  begin_result(quoka, "quoka");
  write_axis(quoka, "layer", std::vector<Index>{2}, "1", "layer");
  write_axis(quoka, "q_head", std::vector<Index>{0, 1}, "1", "query head");
  write_axis(quoka, "kv_head", std::vector<Index>{0}, "1", "KV head");
  put(quoka, "chunk_begin", {2}, {"chunk"}, std::vector<std::int64_t>{0, 4});
  put(quoka, "available", {2}, {"chunk"}, std::vector<std::int64_t>{4, 7});
  put(quoka, "selected/offsets", {3}, {"end"}, std::vector<std::int64_t>{0, 0, 2});
  // The second chunk keeps key 3 of the first.
  put(quoka, "selected/positions", {1, 1, 2}, {"layer", "kv_head", "entry"},
      std::vector<std::int64_t>{3, -1});
  put(quoka, "selected_queries", {1, 2, 2, 2}, {"layer", "q_head", "chunk", "slot"},
      std::vector<std::int64_t>{0, 1, 4, 5, 2, -1, 6, 5});
  const MemoryResultView weights_view(map, "m.h5");
  const MemoryResultView quoka_view(quoka, "q.h5");

  const plot::Figure alone = make_figure(find_figure_kind("attention-map"), {{&weights_view}, {}});
  REQUIRE(alone.panels.size() == 1);
  CHECK(same(mark_of<plot::HeatMap>(alone.panels[0]).values, weights));
  CHECK(mark_of<plot::HeatMap>(alone.panels[0]).x.high == 8.0);
  CHECK_HAS(alone.caption.at(0), "Layer 2, query head 1, 7 tokens");
  CHECK_HAS(alone.caption.at(1), "largest of 2 x 2 weights");

  const plot::Figure both =
      make_figure(find_figure_kind("attention-map"), {{&weights_view, &quoka_view}, {}});
  REQUIRE(both.panels.size() == 2);
  CHECK(same(mark_of<plot::HeatMap>(both.panels[0]).values, weights));
  // Head 1 chose query 2 in the first chunk (one slot is empty), 6 and 5 in the second.
  CHECK(mark_of<plot::Scatter>(both.panels[0]).y == std::vector<double>{2.0, 5.0, 6.0});
  // Rows 2 and 3 (queries 4 and 6) see keys 2 and 3, of which 3 was kept, and their own chunk.
  std::vector<float> kept = weights;
  kept[2 * 4 + 0] = kept[3 * 4 + 0] = kHidden;
  CHECK(same(mark_of<plot::HeatMap>(both.panels[1]).values, kept));
  // 10 pairs of the first chunk, 2 + 3 + 4 of the second; 28 are visible.
  CHECK_HAS(testing::caption_of(both), "Right: 68% of the visible pairs");
}

TEST_CASE("attention-map: as much of the map is drawn as is kept") {
  // 64 tokens in blocks of 8, one chunk of the last 8: it keeps one key in four before it.
  MemoryResult map;
  begin_result(map, "attention-map");
  put(map, "map", {8, 8}, {"query_block", "key_block"}, std::vector<float>(64, 0.5f));
  map.finish({{"layer", 0}, {"head", 0}, {"tokens", 64}, {"block", 8}, {"pooling", "max"}});
  MemoryResult quoka;
  begin_result(quoka, "quoka");
  write_axis(quoka, "layer", std::vector<Index>{0}, "1", "layer");
  write_axis(quoka, "q_head", std::vector<Index>{0}, "1", "query head");
  write_axis(quoka, "kv_head", std::vector<Index>{0}, "1", "KV head");
  put(quoka, "chunk_begin", {1}, {"chunk"}, std::vector<std::int64_t>{56});
  put(quoka, "available", {1}, {"chunk"}, std::vector<std::int64_t>{64});
  std::vector<std::int64_t> positions;
  for (std::int64_t key = 1; key < 56; key += 4) positions.push_back(key);
  const auto n = static_cast<Index>(positions.size());
  put(quoka, "selected/offsets", {2}, {"end"}, std::vector<std::int64_t>{0, n});
  put(quoka, "selected/positions", {1, 1, n}, {"layer", "kv_head", "entry"}, positions);
  put(quoka, "selected_queries", {1, 1, 1, 1}, {"layer", "q_head", "chunk", "slot"},
      std::vector<std::int64_t>{60});
  const MemoryResultView weights_view(map, "m.h5");
  const MemoryResultView quoka_view(quoka, "q.h5");
  const plot::Figure figure =
      make_figure(find_figure_kind("attention-map"), {{&weights_view, &quoka_view}, {}});
  const auto& values = mark_of<plot::HeatMap>(figure.panels.at(1)).values;
  // every cell of the last row has a kept key, a quarter of 7 is 2; and the chunk's own
  CHECK(std::count_if(values.begin() + 56, values.end(), [](float v) { return v == 0.5f; }) == 3);
  CHECK(values[63] == 0.5f);
}

}  // namespace kvscope::map_kinds_test
