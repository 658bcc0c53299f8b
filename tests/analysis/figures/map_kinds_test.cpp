// What the figure of an attention map draws, number by number, from small results.
#include "analysis/base/analysis.hpp"
#include "core/trace/result.hpp"
#include "tests/analysis/figures/drawn.hpp"
#include "tests/support/test.hpp"

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

  const plot::Figure alone = make_figure(find_figure_kind("attention-map"), {{&map}, {}});
  REQUIRE(alone.panels.size() == 1);
  CHECK(same(mark_of<plot::HeatMap>(alone.panels[0]).values, weights));
  CHECK(mark_of<plot::HeatMap>(alone.panels[0]).x.high == 8.0);
  CHECK_HAS(alone.caption.at(0), "Layer 2, query head 1, 7 tokens");
  CHECK_HAS(alone.caption.at(1), "largest of 2 x 2 weights");

  const plot::Figure both = make_figure(find_figure_kind("attention-map"), {{&map, &quoka}, {}});
  REQUIRE(both.panels.size() == 2);
  CHECK(same(mark_of<plot::HeatMap>(both.panels[0]).values, weights));
  // Head 1 chose query 2 in the first chunk (one slot is empty), 6 and 5 in the second.
  CHECK(mark_of<plot::Scatter>(both.panels[0]).y == std::vector<double>{2.0, 5.0, 6.0});
  // Rows 2 and 3 (queries 4 and 6) see keys 2 and 3, of which 3 was kept, and their own chunk.
  std::vector<float> kept = weights;
  kept[2 * 4 + 0] = kept[3 * 4 + 0] = kHidden;
  CHECK(same(mark_of<plot::HeatMap>(both.panels[1]).values, kept));
  // 10 pairs of the first chunk, 2 + 3 + 4 of the second; 28 are visible.
  CHECK_HAS(testing::caption_of(both), ": 68% of the visible pairs");
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
  const plot::Figure figure = make_figure(find_figure_kind("attention-map"), {{&map, &quoka}, {}});
  const auto& values = mark_of<plot::HeatMap>(figure.panels.at(1)).values;
  // every cell of the last row has a kept key, a quarter of 7 is 2; and the chunk's own
  CHECK(std::count_if(values.begin() + 56, values.end(), [](float v) { return v == 0.5f; }) == 3);
  CHECK(values[63] == 0.5f);
}

}  // namespace kvscope::map_kinds_test
