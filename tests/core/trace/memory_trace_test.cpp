// The in-memory trace: what it was filled with is read back, and wrong ranges are refused with a
// sentence.
#include "core/trace/memory_trace.hpp"

#include "tests/support/test.hpp"

namespace kvscope::memory_trace_test {

/// A value that names its place.
float value_at(int what, Index layer, Index head, Index pos, Index c) {
  return static_cast<float>(what * 100000 + layer * 10000 + head * 1000 + pos * 10 + c);
}

/// A trace with filtered layers, heads and rows.
MemoryTrace filled() {
  TraceInfo info = make_trace_info(4, 4, 2, 3, 10, 4);
  info.layers = {1, 3};
  info.q_heads = {2, 3};
  info.kv_heads = {1};
  info.rows = {2, 9};
  MemoryTrace trace(info);
  for (Index layer : info.layers) {
    for (Index t = 0; t < 10; ++t) {
      for (Index c = 0; c < 3; ++c) {
        for (Index h = 0; h < 2 && t >= 2 && t < 9; ++h) {
          trace.q(layer)(h, t - 2, c) = value_at(1, layer, h + 2, t, c);
          trace.lse(layer)(h, t - 2) = value_at(4, layer, h + 2, t, 0);
        }
        trace.k(layer)(Index{0}, t, c) = value_at(2, layer, 1, t, c);
        trace.v(layer)(Index{0}, t, c) = value_at(3, layer, 1, t, c);
      }
    }
  }
  return trace;
}

TEST_CASE("memory trace: rows are read back by true layer, head and position") {
  const MemoryTrace trace = filled();
  const auto q = trace.read_q(3, 2, {3, 8});
  REQUIRE(q.shape() == Shape{5, 3});
  for (Index i = 0; i < 5; ++i) REQUIRE(q(i, Index{2}) == value_at(1, 3, 2, 3 + i, 2));
  const auto k = trace.read_k(1, 1, {0, 10});
  for (Index i = 0; i < 10; ++i) REQUIRE(k(i, Index{1}) == value_at(2, 1, 1, i, 1));
  REQUIRE(trace.read_v(3, 1, {9, 10})(Index{0}, Index{0}) == value_at(3, 3, 1, 9, 0));
  const auto lse = trace.read_lse(1, 3, {2, 9});
  REQUIRE(lse.shape() == Shape{7});
  REQUIRE(lse(Index{6}) == value_at(4, 1, 3, 8, 0));
  REQUIRE(trace.read_q(3, 2, {4, 4}).count() == 0);
}

TEST_CASE("memory trace: what was not recorded is named") {
  const MemoryTrace trace = filled();
  CHECK_SAYS(trace.read_q(2, 2, {3, 4}), "layer 2", "1, 3");
  CHECK_SAYS(trace.read_q(1, 0, {3, 4}), "query head 0");
  CHECK_SAYS(trace.read_k(1, 0, {3, 4}), "KV head 0");
  CHECK_SAYS(trace.read_q(1, 2, {0, 4}), "recorded are [2, 9)");
  REQUIRE_THROWS_AS(trace.read_k(1, 1, {0, 11}), ConfigError);
  REQUIRE_THROWS_AS(trace.read_k(1, 1, {-1, 2}), ConfigError);
  REQUIRE_THROWS_AS(trace.read_k(1, 1, {5, 2}), ConfigError);
}

TEST_CASE("memory trace: senseless infos are refused") {
  REQUIRE_THROWS_AS(MemoryTrace(make_trace_info(1, 3, 2, 4, 8, 8)), ConfigError);
  REQUIRE_THROWS_AS(make_trace_info(1, 2, 1, 4, 8, 0), ConfigError);
  TraceInfo info = make_trace_info(1, 2, 1, 4, 8, 8);
  info.rows = {4, 9};
  REQUIRE_THROWS_AS(MemoryTrace(info), ConfigError);
}

}  // namespace kvscope::memory_trace_test
