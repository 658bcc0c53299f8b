// Background work: values are handed over in poll(), cancelled work is not, errors are sentences.
#include "gui/model/jobs/jobs.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <thread>

#include "core/base/error.hpp"
#include "gui/model/jobs/async_value.hpp"

namespace kvscope::gui::test::jobs_test {

constexpr double kSeconds = 20.0;

struct Number {
  int value = 0;
  std::size_t bytes() const { return sizeof *this; }
};

/// Work that ends only when it is stopped.
void wait_for_stop(const JobContext& job) {
  while (!job.stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  throw Interrupted("stopped");
}

TEST_CASE("a job's value arrives in poll(), on the caller's thread") {
  std::atomic<int> woken = 0;
  JobRunner jobs([&] { ++woken; }, 2);
  const auto caller = std::this_thread::get_id();
  int got = 0;
  const Job job = jobs.start(
      "answer", Lane::heavy,
      [&](JobContext& context) -> std::any {
        context.progress({"counting", 1, 2, "steps"});
        CHECK(std::this_thread::get_id() != caller);
        return 42;
      },
      [&](std::any value) {
        CHECK(std::this_thread::get_id() == caller);
        got = std::any_cast<int>(value);
      });
  REQUIRE(jobs.drain(kSeconds));
  CHECK(got == 42);
  CHECK(job.status().state == JobState::done);
  CHECK(job.status().progress.done == 1);
  CHECK(woken > 0);
  CHECK(jobs.is_idle());
}

TEST_CASE("cancelled work delivers nothing, whether it waits, runs or has just ended") {
  JobRunner jobs;
  int delivered = 0;
  const auto count = [&](std::any) { ++delivered; };
  const Job running = jobs.start(
      "long", Lane::heavy,
      [](JobContext& job) -> std::any {
        wait_for_stop(job);
        return 0;
      },
      count);
  const Job waiting = jobs.start(
      "next", Lane::heavy, [](JobContext&) -> std::any { return 0; }, count);
  waiting.cancel();
  running.cancel();
  REQUIRE(jobs.drain(kSeconds));
  CHECK(delivered == 0);
  CHECK(running.status().state == JobState::cancelled);
  CHECK(waiting.status().state == JobState::cancelled);
}

TEST_CASE("the quick lane does not wait for the heavy one; urgent jobs go first") {
  JobRunner jobs;
  const Job heavy = jobs.start("long", Lane::heavy,
                               [](JobContext& job) -> std::any {
                                 wait_for_stop(job);
                                 return 0;
                               },
                               {});
  while (heavy.status().state != JobState::running) std::this_thread::yield();
  std::string order;
  std::atomic<bool> go = false;
  const auto note = [&](char c) { return [&order, c](std::any) { order += c; }; };
  const auto quick = [](JobContext&) -> std::any { return 0; };
  jobs.start(
      "gate", Lane::quick,
      [&](JobContext&) -> std::any {
        while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return 0;
      },
      note('g'));
  jobs.start("a", Lane::quick, quick, note('a'));
  jobs.start("u", Lane::quick, quick, note('u'), /*urgent=*/true);
  go = true;
  while (order.size() < 3) {
    jobs.poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(order.find('u') < order.find('a'));
  CHECK(heavy.status().state == JobState::running);
  heavy.cancel();
  CHECK(jobs.drain(kSeconds));
}

TEST_CASE("a slot that is gone before its job ends is no trouble") {
  JobRunner jobs;
  Cache cache(1 << 20);
  {
    AsyncValue<Number> slot;
    slot.ask({jobs, cache}, "key", {"number"}, [](JobContext&) { return Number{1}; });
  }
  CHECK(jobs.drain(kSeconds));
}

TEST_CASE("the cache drops what was used longest ago and forgets by prefix") {
  Cache cache(100);
  const auto number = [](int n) { return std::make_shared<const Number>(Number{n}); };
  cache.put("a/1", number(1), 40);
  cache.put("a/2", number(2), 40);
  CHECK(cache.find<Number>("a/1")->value == 1);
  cache.put("b/3", number(3), 40);
  CHECK(cache.find<Number>("a/2") == nullptr);
  CHECK(cache.find<Number>("a/1") != nullptr);
  CHECK(cache.find<int>("a/1") == nullptr);
  cache.put("huge", number(4), 1000);
  CHECK(cache.find<Number>("huge") == nullptr);
  CHECK(cache.bytes() == 80);
  cache.drop_prefix("a/");
  CHECK(cache.bytes() == 40);
}

}  // namespace kvscope::gui::test::jobs_test
