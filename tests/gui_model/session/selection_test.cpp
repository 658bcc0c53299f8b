// The selection stays inside the trace.
#include "gui/model/session/selection.hpp"

#include <catch2/catch_test_macros.hpp>
#include <random>

#include "core/trace/memory_trace.hpp"

namespace kvscope::gui::test::selection_test {

TraceInfo some_heads() {
  TraceInfo info = make_trace_info(8, 8, 2, 4, 100, 16);
  info.layers = {1, 4, 5};
  info.q_heads = {2, 3, 6};
  info.rows = {20, 90};
  return info;
}

TEST_CASE("a key lies before its query or is none") {
  const TraceInfo info = some_heads();
  Selection s{.query = 50, .key = 50};
  CHECK(clamped(s, info).key == 50);
  s.key = 51;
  CHECK_FALSE(clamped(s, info).key);
  s.key = -3;
  CHECK(clamped(s, info).key == 0);
  s.key = 5;  // keys are recorded for all positions
  CHECK(clamped(s, info).key == 5);
}

TEST_CASE("whatever is wanted, what comes out is recorded, and stays as it is") {
  std::mt19937 random(5);
  const TraceInfo info = some_heads();
  for (int round = 0; round < 500; ++round) {
    const auto any = [&] { return static_cast<Index>(random() % 240) - 60; };
    Selection wanted{.layer = any(), .q_head = any(), .query = any()};
    if (random() % 2 == 0) wanted.key = any();
    const Selection got = clamped(wanted, info);
    CHECK(info.has_layer(got.layer));
    CHECK(info.has_q_head(got.q_head));
    CHECK(got.query >= info.rows.begin);
    CHECK(got.query < info.rows.end);
    if (got.key) {
      CHECK(*got.key >= 0);
      CHECK(*got.key <= got.query);
    }
    CHECK(clamped(got, info) == got);
  }
}

}  // namespace kvscope::gui::test::selection_test
