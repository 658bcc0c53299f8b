// The selection stays inside the trace; the history of changes is bounded.
#include "gui/model/session/selection.hpp"

#include <catch2/catch_test_macros.hpp>
#include <random>

#include "core/trace/memory_trace.hpp"

namespace kvscope::gui::test::selection_test {

using Clock = History::Clock;

Snapshot at_layer(Index layer) {
  return Snapshot{.selection = {.layer = layer}};
}

TraceInfo some_heads() {
  TraceInfo info = make_trace_info(8, 8, 2, 4, 100, 16);
  info.layers = {1, 4, 5};
  info.q_heads = {2, 3, 6};
  info.rows = {20, 90};
  return info;
}

TEST_CASE("indices go to the nearest that was recorded") {
  const TraceInfo info = some_heads();
  const auto layer_of = [&](Index wanted) {
    return clamped(Selection{.layer = wanted}, info).layer;
  };
  CHECK(layer_of(0) == 1);
  CHECK(layer_of(1) == 1);
  CHECK(layer_of(2) == 1);
  CHECK(layer_of(3) == 4);
  CHECK(layer_of(5) == 5);
  CHECK(layer_of(1000) == 5);
  CHECK(layer_of(-7) == 1);
  Selection s{.q_head = 4, .query = 5};
  CHECK(clamped(s, info).q_head == 3);
  CHECK(clamped(s, info).query == 20);
  s.query = 1 << 30;
  CHECK(clamped(s, info).query == 89);
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

TEST_CASE("the history is bounded: the oldest steps go first") {
  History history;
  for (int i = 0; i < 600; ++i) history.note(at_layer(i), "", Clock::now());
  Index n = 0;
  Snapshot last;
  while (history.can_undo()) {
    last = history.undo(at_layer(0));
    ++n;
  }
  CHECK(n == 500);
  CHECK(last == at_layer(100));
}

}  // namespace kvscope::gui::test::selection_test
