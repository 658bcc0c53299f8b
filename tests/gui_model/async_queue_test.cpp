// Values computed one after another: order, failures, cancelling, and what stays in the cache.
#include "gui/model/jobs/async_queue.hpp"

#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <mutex>
#include <thread>

#include "core/base/error.hpp"

namespace kvscope::gui::test::async_queue_test {

constexpr double kSeconds = 20.0;

struct Number {
  int value = 0;
  std::size_t bytes() const { return sizeof *this; }
};

struct Rig {
  Cache cache{1 << 16};
  JobRunner jobs{{}, 2};
  AsyncQueue<Number> queue;
  std::mutex mutex;
  std::vector<int> computed;

  QueueItem<Number> item(int number, bool fails = false) {
    QueueItem<Number> item;
    item.key = fmt::format("number/{}", number);
    item.request.title = fmt::format("Number {}", number);
    item.compute = [this, number, fails](JobContext&) {
      const std::lock_guard lock(mutex);
      computed.push_back(number);
      if (fails) throw ConfigError(fmt::format("{} fails", number));
      return Number{number};
    };
    return item;
  }
  QueueItem<Number> endless(int number) {
    QueueItem<Number> item = this->item(number);
    item.compute = [](JobContext& job) -> Number {
      while (!job.stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      throw Interrupted("stopped");
    };
    return item;
  }
  QueueView<Number> ask(const std::vector<QueueItem<Number>>& items) {
    return queue.ask({jobs, cache}, items);
  }
  /// Frames until everything is over.
  QueueView<Number> settle(const std::vector<QueueItem<Number>>& items) {
    for (int frame = 0; frame < 200; ++frame) {
      const auto view = ask(items);
      if (!view.is_busy()) return view;
      REQUIRE(jobs.drain(kSeconds));
    }
    FAIL("the queue never ends");
    return {};
  }
};

TEST_CASE("async queue: one job at a time, in order, and values by item", "[async_queue]") {
  Rig desk;
  const std::vector items = {desk.item(1), desk.item(2), desk.item(3)};
  auto view = desk.ask(items);
  CHECK(view.is_busy());
  CHECK(view.status.title == "Number 1");
  CHECK(desk.jobs.active().size() <= 1);  // none once it has ended
  view = desk.settle(items);
  CHECK(view.is_complete());
  CHECK(desk.computed == std::vector{1, 2, 3});
  for (std::size_t i = 0; i < 3; ++i) CHECK(view.values[i]->value == static_cast<int>(i) + 1);

  // What is asked for again, in another order and with others, is not computed again.
  const std::vector others = {desk.item(3), desk.item(4)};
  view = desk.ask(others);
  REQUIRE(view.values[0]);
  CHECK(view.values[0]->value == 3);
  CHECK_FALSE(view.values[1]);
  CHECK(view.n_known == 1);
  desk.settle(others);
  view = desk.settle(items);
  CHECK(view.is_complete());
  CHECK(desk.computed == std::vector{1, 2, 3, 4});
}

TEST_CASE("async queue: a failure keeps its sentence and the others go on", "[async_queue]") {
  Rig desk;
  const std::vector items = {desk.item(1, /*fails=*/true), desk.item(2)};
  auto view = desk.settle(items);
  CHECK(view.n_known == 1);
  CHECK_FALSE(view.is_complete());
  CHECK_FALSE(view.is_busy());
  CHECK(view.errors[0] == "1 fails");
  CHECK(view.errors[1].empty());
  CHECK(view.status.state == JobState::failed);
  CHECK(view.status.error == "1 fails");
  desk.queue.retry();
  view = desk.settle(items);
  CHECK(desk.computed == std::vector{1, 2, 1});
  CHECK(view.errors[0] == "1 fails");
}

TEST_CASE("async queue: cancelling stops all that waits until it is asked again", "[async_queue]") {
  Rig desk;
  const std::vector items = {desk.item(1), desk.endless(2), desk.item(3)};
  while (desk.ask(items).n_known < 1) desk.jobs.poll();
  desk.ask(items);
  desk.queue.cancel();
  auto view = desk.ask(items);
  CHECK_FALSE(view.is_busy());
  CHECK_FALSE(view.is_complete());
  CHECK(view.n_known == 1);
  CHECK(view.status.state == JobState::cancelled);
  REQUIRE(desk.jobs.drain(kSeconds));
  CHECK(desk.computed == std::vector{1});
  desk.queue.retry();
  const std::vector sound = {desk.item(1), desk.item(2), desk.item(3)};
  view = desk.settle(sound);
  CHECK(view.is_complete());
  CHECK(desk.computed == std::vector{1, 2, 3});
}

TEST_CASE("async queue: another question cancels what runs; its end leaves nothing behind",
          "[async_queue]") {
  Rig desk;
  {
    const std::vector items = {desk.endless(1), desk.item(2)};
    CHECK(desk.ask(items).is_busy());
  }
  CHECK(desk.settle({desk.item(3)}).is_complete());
  CHECK(desk.computed == std::vector{3});
  {
    AsyncQueue<Number> gone;
    gone.ask({desk.jobs, desk.cache}, {desk.item(9)});
  }
  REQUIRE(desk.jobs.drain(kSeconds));
}

}  // namespace kvscope::gui::test::async_queue_test
