// The selection stays inside the trace; undo and redo go through gestures, not through every move.
#include "gui/model/session/selection.hpp"

#include <catch2/catch_test_macros.hpp>
#include <random>

#include "core/trace/memory_trace.hpp"
#include "gui/model/session/methods.hpp"

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

TEST_CASE("undo goes back step by step, redo forward again") {
  History history;
  const auto now = Clock::now();
  CHECK_FALSE(history.can_undo());
  history.note(at_layer(0), "a", now);
  history.note(at_layer(1), "b", now);
  CHECK(history.undo(at_layer(2)) == at_layer(1));
  CHECK(history.undo(at_layer(1)) == at_layer(0));
  CHECK_FALSE(history.can_undo());
  CHECK(history.redo(at_layer(0)) == at_layer(1));
  CHECK(history.redo(at_layer(1)) == at_layer(2));
  CHECK_FALSE(history.can_redo());
  CHECK(history.undo(at_layer(2)) == at_layer(1));
}

TEST_CASE("a new change forgets what was undone") {
  History history;
  const auto now = Clock::now();
  history.note(at_layer(0), "a", now);
  history.undo(at_layer(1));
  history.note(at_layer(0), "b", now);
  CHECK_FALSE(history.can_redo());
  CHECK(history.undo(at_layer(9)) == at_layer(0));
}

TEST_CASE("one gesture is one step: the same origin in quick succession") {
  History history;
  const auto start = Clock::now();
  for (int i = 0; i < 20; ++i)
    history.note(at_layer(i), "slider", start + std::chrono::milliseconds(100 * i));
  CHECK(history.undo(at_layer(20)) == at_layer(0));
  CHECK_FALSE(history.can_undo());

  history.note(at_layer(0), "slider", start + std::chrono::seconds(10));
  history.note(at_layer(1), "slider", start + std::chrono::seconds(12));  // a second gesture
  history.note(at_layer(2), "keys", start + std::chrono::seconds(12));
  history.note(at_layer(3), "", start + std::chrono::seconds(12));
  history.note(at_layer(4), "", start + std::chrono::seconds(12));  // no name: always a step
  for (Index layer = 4; layer >= 0; --layer) CHECK(history.undo(at_layer(99)) == at_layer(layer));
  CHECK_FALSE(history.can_undo());
}

TEST_CASE("a gesture after an undo is a step of its own") {
  History history;
  const auto now = Clock::now();
  history.note(at_layer(0), "slider", now);
  history.note(at_layer(1), "keys", now);
  history.undo(at_layer(2));
  history.note(at_layer(1), "slider", now);
  CHECK(history.undo(at_layer(3)) == at_layer(1));
  CHECK(history.undo(at_layer(1)) == at_layer(0));
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

TEST_CASE("sliders end where the trace ends") {
  TraceInfo info{.n_layers = 8, .n_tokens = 8192};
  Parameters parameters;
  visit_fields(parameters, [&](const Field& field, auto&) {
    const Field here = within(field, info);
    INFO(field.name);
    if (field.name == "dense-layers") CHECK(here.max == 8.0);
    if (field.name == "budget" || field.name == "chunk") CHECK(here.max == 8192.0);
    if (field.name == "nucleus") CHECK(here.max == field.max);
    CHECK(here.min == field.min);
  });
  info.n_tokens = 1;  // a range stays a range
  visit_fields(parameters, [&](const Field& field, auto&) {
    CHECK(within(field, info).max >= within(field, info).min);
  });
}

TEST_CASE("methods: ticked ones first, each with its idea, obstacles as sentences",
          "[method_items]") {
  Parameters parameters;
  const auto items =
      method_items({"quest", "quoka:n-queries=4", "specattn"}, parameters, Phase::prefill, false);
  CHECK(items.size() == method_names().size() + 1);
  CHECK(items[0].name == "quest");
  CHECK(items[0].is_ticked);
  CHECK(items[1].name == "quoka:n-queries=4");
  CHECK(items[1].spec == items[1].name);
  CHECK_FALSE(items[1].idea.empty());
  CHECK_FALSE(items[2].obstacle.empty());
  CHECK(items[3].name.starts_with("oracle"));
  CHECK_FALSE(items[3].is_ticked);
  for (const MethodItem& item : items) CHECK_FALSE(item.title.empty());
  // An unknown name of a session file is an obstacle, not an accident.
  CHECK_FALSE(method_items({"no-such"}, parameters, Phase::prefill, false)[0].obstacle.empty());
}

}  // namespace kvscope::gui::test::selection_test
