// Units that workers share out among themselves: each once, whoever comes; again where one takes
// too long; and who comes second stops.
#include "analysis/units/unit_leases.hpp"

#include <fstream>
#include <mutex>
#include <thread>

#include "analysis/units/unit_file.hpp"
#include "analysis/units/unit_folder.hpp"
#include "core/base/json.hpp"
#include "core/base/progress.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::unit_leases_test {

namespace fs = std::filesystem;

struct Shared {
  TempDir dir;
  fs::path leases = made("leases");
  fs::path units = made("units");
  std::vector<std::string> ids;

  explicit Shared(std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) ids.push_back(unit_id("00112233445566aa", i));
  }
  fs::path made(const char* name) const {
    fs::create_directory(dir.path() / name);
    return dir.path() / name;
  }
  UnitLeases worker(std::size_t rank = 0, std::size_t size = 1) const {
    return UnitLeases(ids, rank, size, leases, units);
  }
  void finish(UnitLeases& worker, const std::string& id, double seconds = 0.0) const {
    std::ofstream(unit_file(units, id)) << "done";
    worker.finished(id, seconds);
  }
};

TEST_CASE("workers give out each unit once, and who is faster takes more") {
  const Shared shared(300);
  std::mutex mutex;
  std::map<std::string, int> times;
  std::vector<std::size_t> by_worker(3);
  std::vector<std::thread> workers;
  for (std::size_t w = 0; w < by_worker.size(); ++w) {
    workers.emplace_back([&, w] {
      UnitLeases own = shared.worker(w, by_worker.size());
      while (const auto id = own.next({})) {
        {
          const std::lock_guard lock(mutex);
          ++times[*id];
          ++by_worker[w];
        }
        if (w == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        shared.finish(own, *id);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  CHECK(times.size() == 300);
  for (const auto& [id, n] : times) CHECK(n == 1);
  CHECK(by_worker[0] < 100);  // its share, had the list been cut beforehand
  CHECK(fs::is_empty(shared.leases));
}

TEST_CASE("a unit that another worker had for long is done again, once, longest first") {
  const Shared shared(4);
  UnitLeases dead = shared.worker();
  CHECK(dead.next({}) == shared.ids[0]);
  CHECK(dead.next({}) == shared.ids[1]);
  UnitLeases own = shared.worker();
  for (const std::size_t i : {2, 3}) {
    CHECK(own.next({}) == shared.ids[i]);
    shared.finish(own, shared.ids[i], 0.1);
  }
  // By the clock of who looks the second is older.
  const auto now = fs::file_time_type::clock::now();
  fs::last_write_time(shared.leases / shared.ids[0], now - std::chrono::seconds(5));
  fs::last_write_time(shared.leases / shared.ids[1], now - std::chrono::seconds(9));
  CHECK(own.next({}) == shared.ids[1]);
  UnitLeases third = shared.worker();
  CHECK(third.next({}) == shared.ids[0]);
  CHECK_FALSE(third.next({}));  // both have two workers
  shared.finish(own, shared.ids[1]);
  shared.finish(third, shared.ids[0]);
  CHECK_FALSE(own.next({}));
  CHECK(fs::is_empty(shared.leases));
}

TEST_CASE(
    "units that are young are no stragglers, whatever the clock says, and a stop ends waiting") {
  CHECK_FALSE(is_straggler(0.9, 0.0));
  CHECK(is_straggler(1.1, 0.5));
  CHECK_FALSE(is_straggler(9.0, 5.0));
  CHECK(is_straggler(11.0, 5.0));
  const Shared shared(1);
  UnitLeases first = shared.worker();
  CHECK(first.next({}) == shared.ids[0]);
  fs::last_write_time(shared.leases / shared.ids[0],
                      fs::file_time_type::clock::now() + std::chrono::hours(1));
  std::stop_source stop;
  std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    stop.request_stop();
  });
  UnitLeases second = shared.worker();
  CHECK_THROWS_AS(second.next(stop.get_token()), Interrupted);
}

TEST_CASE("who is second at a unit stops, and its result is the first one's") {
  const TempDir dir;
  UnitWork work{.command = "test", .header = {{"kind", "test"}}, .n_units = 1};
  bool is_asked = false;
  work.run = [&](std::size_t, const ProgressFn&, const std::stop_token& stop) -> Json {
    // Meanwhile the other worker writes it.
    UnitWork other = work;
    other.run = [](std::size_t, const ProgressFn&, std::stop_token) { return Json{{"x", 1}}; };
    do_unit_file(other, 0, dir.path(), {}, {});
    for (int i = 0; i < 500 && !stop.stop_requested(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    is_asked = stop.stop_requested();
    throw Interrupted("stopped");
  };
  seal(work);
  CHECK(do_unit_file(work, 0, dir.path(), {}, {}).empty());
  CHECK(is_asked);
  CHECK(read_unit_file(unit_file(dir.path(), unit_id(work.hash, 0))).line == Json{{"x", 1}});
  // One that fails after the other has finished, has not failed.
  fs::remove(unit_file(dir.path(), unit_id(work.hash, 0)));
  work.run = [&](std::size_t, const ProgressFn&, const std::stop_token&) -> Json {
    UnitWork other = work;
    other.run = [](std::size_t, const ProgressFn&, std::stop_token) { return Json{{"x", 1}}; };
    do_unit_file(other, 0, dir.path(), {}, {});
    throw IoError("no space");
  };
  CHECK(do_unit_file(work, 0, dir.path(), {}, {}).empty());
  CHECK_FALSE(has_failed(dir.path(), unit_id(work.hash, 0)));
}

}  // namespace kvscope::test::unit_leases_test
