// Weights of one head: every level against a whole map by loops.
#include "gui/model/map/attention_head.hpp"
#include "core/trace/result.hpp"

#include <catch2/catch_test_macros.hpp>
#include <limits>

#include "analysis/kinds/attention_map.hpp"
#include "core/base/error.hpp"
#include "gui_model/map/naive_map.hpp"

namespace kvscope::gui::test::attention_head_test {

TraceInfo without_lse(TraceInfo info) {
  info.capture.lse = false;
  return info;
}

/// Compares some blocks of every level with the naive map.
void check_levels(const TraceSource& trace, Index q_head, int n_threads) {
  const Index n = trace.info().n_tokens;
  const std::vector<double> map = naive_map(trace, 0, q_head);
  const auto head = AttentionHead::load(trace, 0, q_head, {});
  ThreadPool pool(n_threads);
  for (int level = 0; level <= 9; ++level) {
    const Index cells = head->grid().cells(level);
    // whole rows, and a part that begins and ends anywhere
    for (const auto& [rows, cols] :
         {std::pair<CellRange, CellRange>{{0, cells}, {0, cells}},
          {{cells / 3, cells}, {cells / 5, std::max(cells / 5 + 1, cells / 2)}}}) {
      const auto fresh = AttentionHead::load(trace, 0, q_head, {});
      const PooledCells found = fresh->pool(level, rows, cols, pool, {});
      Index wrong = 0;
      for (Index row = rows.begin; row < rows.end; ++row) {
        for (Index col = cols.begin; col < cols.end; ++col) {
          const NaiveCell expected = naive_cell(map, n, Index{1} << level, row, col);
          const std::size_t at = found.at(row, col);
          if (!same(found.max[at], expected.max) || !same(found.mean[at], expected.mean)) ++wrong;
          if (level > 0) continue;
          const auto weight = head->weight(row, col);  // of one pair: its cell, bit for bit
          if (weight ? static_cast<float>(*weight) != found.max[at] : !std::isnan(found.max[at]))
            ++wrong;
        }
      }
      INFO("level " << level << ", rows from " << rows.begin);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("every level equals the whole map pooled by loops", "[map]") {
  MemoryTrace trace = map_trace(333);
  const MemoryTrace plain = with_info(trace, without_lse(trace.info()));
  check_levels(plain, 0, 2);
  check_levels(plain, 1, 1);
}

TEST_CASE("a window, a sink and partial rows change the map as they should", "[map]") {
  MemoryTrace trace = map_trace(301, /*has_sink_logits=*/true);
  TraceInfo info = without_lse(trace.info());
  REQUIRE(info.sink_logit(0, 1).has_value());
  info.rows = {45, 290};
  info.window[0] = 77;
  check_levels(with_info(trace, info), 1, 3);
  info.window[0].reset();
  check_levels(with_info(trace, info), 0, 2);
}

TEST_CASE("the recorded lse is used if it is right, and not if it is not", "[map]") {
  MemoryTrace trace = map_trace(120, /*has_sink_logits=*/true);
  record_lse(trace);
  CHECK(AttentionHead::load(trace, 0, 1, {})->uses_recorded_lse());
  check_levels(trace, 1, 2);
  record_lse(trace, 0.01);
  CHECK_FALSE(AttentionHead::load(trace, 0, 1, {})->uses_recorded_lse());
  check_levels(trace, 1, 2);
}

TEST_CASE("what cannot be shown is said, and a stop is obeyed", "[map]") {
  MemoryTrace trace = map_trace(64);
  CHECK_THROWS_AS(AttentionHead::load(trace, 5, 0, {}), ConfigError);
  CHECK_THROWS_AS(AttentionHead::load(trace, 0, 9, {}), ConfigError);
  TraceInfo info = trace.info();
  info.capture.qkv = false;
  CHECK_THROWS_AS(AttentionHead::load(MemoryTrace(info), 0, 0, {}), ConfigError);
  info = trace.info();
  info.rows = {5, 5};
  CHECK_THROWS_AS(AttentionHead::load(with_info(trace, info), 0, 0, {}), ConfigError);
  trace.q(0)(0, 3, 1) = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_AS(AttentionHead::load(trace, 0, 0, {}), FormatError);
  const auto head = AttentionHead::load(trace, 0, 1, {});
  for (const auto& [query, key] : {std::pair{-1, 0}, {50, 64}, {64, 5}})
    CHECK_FALSE(head->weight(query, key));
  std::stop_source stop;
  stop.request_stop();
  ThreadPool pool(2);
  CHECK_THROWS_AS(head->pool(0, {0, 64}, {0, 64}, pool, stop.get_token()), Interrupted);
  CHECK_THROWS_AS(AttentionHead::load(trace, 0, 1, stop.get_token()), Interrupted);
}

}  // namespace kvscope::gui::test::attention_head_test
