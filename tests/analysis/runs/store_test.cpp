// The store: answers of many processes, damage by its line; leases: each item once, whoever comes;
// and the loop that does what is not known.
#include "analysis/runs/store.hpp"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "analysis/runs/leases.hpp"
#include "analysis/runs/work.hpp"
#include "core/base/json.hpp"
#include "core/base/read_files.hpp"
#include "core/base/whole_file.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::store_test {

std::vector<Json> line_of(const std::string& key, int x) {
  return answer_of(key, {{"x", x}});
}

fs::path only_segment(const fs::path& folder) {
  return fs::directory_iterator(folder / "answers")->path();
}

void write_text(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
}

/// The name of a worker of this machine that ended.
std::string dead_worker(const std::string& own) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  const std::string host = own.substr(0, own.rfind('-', own.rfind('-') - 1));
  return fmt::format("{}-{}-00000000", host, child);
}

TEST_CASE("a store has what its writers wrote, and forgets when it is told to") {
  const TempDir dir;
  Store a(dir.path() / "s");
  Store b(dir.path() / "s");
  a.add(line_of("k1-code", 1));
  b.refresh();
  CHECK(answer_in(b, "k1-code") == Json{{"x", 1}});
  CHECK(b.knew("k1-other"));
  b.add(std::vector<Json>{{{"key", "k2-code"}, {"failure", "no memory"}}});
  a.refresh();
  REQUIRE(a.find("k2-code") != nullptr);
  CHECK(a.find("k2-code")->failure == "no memory");
  CHECK_FALSE(a.knows("k2-code"));
  a.forget("k2-code");
  a.forget("k1-code");
  CHECK(a.find("k2-code") == nullptr);
  b.refresh();
  CHECK(b.find("k1-code") == nullptr);
  b.add(line_of("k1-code", 2));
  Store again(dir.path() / "s");
  CHECK(answer_in(again, "k1-code") == Json{{"x", 2}});
  CHECK(again.n_known() == 1);
  // What is known has not failed, whoever said so last.
  again.add(std::vector<Json>{{{"key", "k1-code"}, {"failure", "late"}}});
  CHECK(Store(dir.path() / "s").knows("k1-code"));
}

TEST_CASE("a torn last line is passed over, any other damage has its file and number") {
  const TempDir dir;
  {
    Store store(dir.path() / "s");
    store.add(line_of("a-c", 1));
    store.add(line_of("b-c", 2));
  }
  const fs::path segment = only_segment(dir.path() / "s");
  const std::string text = read_file(segment);
  const auto known = [&](const std::string& bytes) {
    write_text(segment, bytes);
    return Store(dir.path() / "s").n_known();
  };
  CHECK(known(text) == 2);
  CHECK(known(text.substr(0, text.size() - 1)) == 1);  // without its line feed
  CHECK(known(text + "{\"sum\":") == 2);
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {  // the last line is whole, too
    std::string flipped = text;
    flipped[i] ^= 1;
    const auto line =
        1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(i), '\n');
    CHECK_SAYS(known(flipped), fmt::format("{}, line {}: ", segment.string(), line));
  }
  CHECK(known("") == 0);  // of a disk that was full
  CHECK_SAYS(known("not a store\n"), "line 1");
  const std::string newer = "{\"kvscope_store\":4}";
  CHECK_SAYS(known(fmt::format("{{\"sum\":\"{}\",\"data\":{}}}\n", text_checksum(newer), newer)),
             "of another version");
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  CHECK_SAYS(known(fmt::format("{{\"sum\":\"{}\",\"data\":{}}}\n", text_checksum(deep), deep)),
             "nested");
  write_text(dir.path() / "file", "x");
  CHECK_SAYS(Store(dir.path() / "file"), "is a file");
  fs::create_directory(dir.path() / "other");
  write_text(dir.path() / "other" / "mine.txt", "x");
  CHECK_SAYS(Store(dir.path() / "other"), "holds other files");
}

TEST_CASE("an item is given to one worker; of a dead one to the next; five deaths are enough") {
  const TempDir dir;
  const Store store(dir.path() / "s");
  Leases own(dir.path() / "l", store.worker());
  Leases dead(dir.path() / "l", dead_worker(store.worker()));
  int n_dead = 0;
  {
    const auto lease = own.take("k-1", {});
    REQUIRE(lease != nullptr);
    CHECK(own.take("k-1", {}) == nullptr);
    CHECK(own.take_over("k-1", 0.0, {}, kMostTries, n_dead) == nullptr);  // it is young
    CHECK(own.at_work() == std::vector<std::string>{"k-1"});
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    CHECK(own.take_over("k-1", 9.0, {}, kMostTries, n_dead) == nullptr);
    const auto second = own.take_over("k-1", 0.0, {}, kMostTries, n_dead);
    REQUIRE(second != nullptr);  // a straggler
    CHECK(second->is_shared());
    CHECK(own.take_over("k-1", 0.0, {}, kMostTries, n_dead) == nullptr);  // two are enough
    second->answered();
    for (int i = 0; i < 40 && !lease->stop().stop_requested(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK(lease->stop().stop_requested());
  }
  CHECK(fs::is_empty(dir.path() / "l"));
  // What a killed worker leaves: its files, with nobody behind them.
  const std::string name = dead_worker(store.worker());
  for (int i = 1; i <= kMostTries; ++i) {
    if (i > 1) {
      const auto lease = own.take_over("k-2", 0.0, {}, kMostTries, n_dead);
      REQUIRE(lease != nullptr);
      CHECK(n_dead == i - 1);
      CHECK_FALSE(lease->is_shared());
    }
    write_text(dir.path() / "l" / fmt::format("k-2.{}", i), name);
  }
  CHECK(own.take_over("k-2", 0.0, {}, kMostTries, n_dead) == nullptr);
  CHECK(n_dead == kMostTries);
  CHECK(own.at_work().empty());
  own.clear_dead();
  CHECK(fs::is_empty(dir.path() / "l"));
}

/// Items that say their number; item 3 fails.
Work numbers(std::size_t n) {
  Work work;
  work.command = "test";
  work.config = {{"n", n}};
  name_items(work, n);
  work.seconds = [](std::size_t i) { return static_cast<double>(i); };
  work.run = [keys = work.keys](std::span<const std::size_t> items, const Lease*, const ProgressFn&,
                                const std::stop_token&) {
    const std::size_t i = items.front();
    if (i == 3) throw IoError("no such layer");
    return line_of(keys[i], static_cast<int>(i));
  };
  return work;
}

TEST_CASE("a file that is another one at the next item ends the work, whose key is of the first") {
  const TempDir dir;
  const ReadFiles files;
  const fs::path input = dir.write("input", "one");
  Work work;
  work.keys = {"k1-code", "k2-code", "k3-code"};
  work.run = [&](std::span<const std::size_t> items, const Lease*, const ProgressFn&,
                 std::stop_token) {
    const std::size_t i = items.front();
    if (i == 1) fs::rename(dir.write("other", "two"), input);
    return answer_of(work.keys[i], {{"x", read_whole_file(input, 100)}});
  };
  Store store(dir.path() / "s");
  CHECK_SAYS_AS(IoError, run_items(work, store, OnFailure::keep, {}, {}), "input was changed");
  CHECK(store.answers().size() == 1);
  CHECK(answer_in(store, "k1-code") == Json{{"x", "one"}});
}

TEST_CASE("items wait for others, and five dead workers are an answer") {
  const TempDir dir;
  Work work = numbers(3);
  work.state = [&work](std::size_t i, const Store& store) {
    if (store.find(work.keys[i]) != nullptr) return ItemState::done;
    return i > 0 && store.find(work.keys[i - 1]) == nullptr ? ItemState::waits : ItemState::to_do;
  };
  Store store(dir.path() / "s");
  fs::create_directories(store.leases());
  for (int i = 1; i <= kMostTries; ++i)
    write_text(store.leases() / fmt::format("{}.{}", work.keys[1], i), dead_worker(store.worker()));
  run_items(work, store, OnFailure::keep, {}, {});
  CHECK(store.knows(work.keys[0]));
  REQUIRE(store.find(work.keys[1]) != nullptr);
  CHECK(store.find(work.keys[1])->failure == "it ended 5 workers");
  CHECK(store.knows(work.keys[2]));
}

}  // namespace kvscope::test::store_test
