// The in-memory trace: what is written call by call is read back, and wrong shapes and ranges are
// refused with a sentence.
#include "core/trace/memory_trace.hpp"

#include "tests/support/test.hpp"

namespace kvscope::memory_trace_test {

/// A value that names its place.
float value_at(int what, Index layer, Index head, Index pos, Index c) {
  return static_cast<float>(what * 100000 + layer * 10000 + head * 1000 + pos * 10 + c);
}

/// Records `n_calls` calls of a trace with filtered layers, heads and rows.
MemoryTrace recorded(std::size_t n_calls, TraceStatus status) {
  TraceInfo info = make_trace_info(4, 4, 2, 3, 10, 4);
  info.layers = {1, 3};
  info.q_heads = {2, 3};
  info.kv_heads = {1};
  info.rows = {2, 9};
  info.status = TraceStatus::recording;
  MemoryTrace trace;
  trace.begin(info);
  for (std::size_t u = 0; u < n_calls; ++u) {
    const TokenRange tokens = info.calls[u].tokens;
    const TokenRange rows{std::max<Index>(tokens.begin, 2), std::min<Index>(tokens.end, 9)};
    for (Index layer : info.layers) {
      Tensor<float> q({2, rows.size(), 3}), k({1, tokens.size(), 3}), v({1, tokens.size(), 3});
      Tensor<float> lse({2, rows.size()});
      for (Index c = 0; c < 3; ++c) {
        for (Index i = 0; i < rows.size(); ++i) {
          for (Index h = 0; h < 2; ++h) {
            q(h, i, c) = value_at(1, layer, h + 2, rows.begin + i, c);
            lse(h, i) = value_at(4, layer, h + 2, rows.begin + i, 0);
          }
        }
        for (Index i = 0; i < tokens.size(); ++i) {
          k(Index{0}, i, c) = value_at(2, layer, 1, tokens.begin + i, c);
          v(Index{0}, i, c) = value_at(3, layer, 1, tokens.begin + i, c);
        }
      }
      LayerRows out{.layer = layer, .q = q.view(), .k = k.view(), .v = v.view(), .lse = lse.view()};
      trace.write_layer(out);
    }
    std::vector<TokenId> ids;
    for (Index t = tokens.begin; t < tokens.end; ++t) ids.push_back(static_cast<TokenId>(t + 50));
    trace.write_tokens(ids, {});
    trace.commit_call();
  }
  trace.finish(status);
  return trace;
}

TEST_CASE("memory trace: calls are read back by true layer, head and position") {
  const MemoryTrace trace = recorded(3, TraceStatus::complete);
  REQUIRE(trace.info().status == TraceStatus::complete);
  REQUIRE(trace.tokens().size() == 10);
  REQUIRE(trace.tokens()[9] == 59);
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
  const MemoryTrace trace = recorded(3, TraceStatus::complete);
  CHECK_SAYS(trace.read_q(2, 2, {3, 4}), "layer 2", "1, 3");
  CHECK_SAYS(trace.read_q(1, 0, {3, 4}), "query head 0");
  CHECK_SAYS(trace.read_k(1, 0, {3, 4}), "KV head 0");
  CHECK_SAYS(trace.read_q(1, 2, {0, 4}), "recorded are [2, 9)");
  REQUIRE_THROWS_AS(trace.read_k(1, 1, {0, 11}), ConfigError);
  REQUIRE_THROWS_AS(trace.read_k(1, 1, {-1, 2}), ConfigError);
  REQUIRE_THROWS_AS(trace.read_k(1, 1, {5, 2}), ConfigError);
}

TEST_CASE("memory trace: an interrupted recording ends with its last whole call") {
  const MemoryTrace trace = recorded(2, TraceStatus::interrupted);
  REQUIRE(trace.info().n_tokens == 8);
  REQUIRE(trace.info().n_prompt == 8);
  REQUIRE(trace.info().rows == TokenRange{2, 8});
  REQUIRE(trace.info().calls.size() == 2);
  REQUIRE(trace.read_k(1, 1, {0, 8}).dim(0) == 8);
  REQUIRE_THROWS_AS(trace.read_k(1, 1, {0, 9}), ConfigError);
  const MemoryTrace none = recorded(0, TraceStatus::interrupted);
  REQUIRE(none.info().n_tokens == 0);
  REQUIRE(none.info().rows.size() == 0);
}

TEST_CASE("memory trace: wrong shapes, too many calls and senseless infos are refused") {
  MemoryTrace trace = recorded(3, TraceStatus::complete);
  LayerRows rows{.layer = 1};
  CHECK_SAYS(trace.write_layer(rows), "all 3 calls");
  MemoryTrace fresh(make_trace_info(1, 2, 1, 4, 8, 8));
  Tensor<float> k({1, 7, 4});
  rows.layer = 0;
  rows.k = k.view();
  CHECK_SAYS(fresh.write_layer(rows), "expected shape [1, 8, 4], found [1, 7, 4]");
  REQUIRE_THROWS_AS(MemoryTrace(make_trace_info(1, 3, 2, 4, 8, 8)), ConfigError);
  REQUIRE_THROWS_AS(make_trace_info(1, 2, 1, 4, 8, 0), ConfigError);
  TraceInfo info = make_trace_info(1, 2, 1, 4, 8, 8);
  info.rows = {4, 9};
  REQUIRE_THROWS_AS(MemoryTrace(info), ConfigError);
}

}  // namespace kvscope::memory_trace_test
