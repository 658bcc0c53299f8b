// A new file has its name when it is whole: kills, other writers, odd outputs, temporaries of the
// dead.
#include "core/base/new_file.hpp"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include "core/base/whole_file.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::new_file_test {

std::size_t n_files(const TempDir& dir) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()));
}

TEST_CASE("a new file has its name when it is whole, and leaves nothing else") {
  const TempDir dir;
  const fs::path target = dir.path() / "a.txt";
  {
    NewFile file(target, /*overwrite=*/false);
    file.write("half");
    CHECK(!fs::exists(target));
    CHECK(n_files(dir) == 1);
  }
  CHECK(n_files(dir) == 0);
  write_new_file(target, "whole", /*overwrite=*/false);
  CHECK(read_file(target) == "whole");
  CHECK_THROWS_AS(write_new_file(target, "other", /*overwrite=*/false), IoError);
  CHECK(read_file(target) == "whole");
  write_new_file(target, "other", /*overwrite=*/true, Sync::no);
  CHECK(read_file(target) == "other");
  CHECK(n_files(dir) == 1);
}

TEST_CASE("an old file stays until the new one is published; of two writers the last wins") {
  const TempDir dir;
  const fs::path target = dir.write("a.txt", "old");
  NewFile one(target, /*overwrite=*/true);
  NewFile two(target, /*overwrite=*/true);
  CHECK(one.temporary() != two.temporary());
  one.write("one");
  two.write("two, longer");
  CHECK(read_file(target) == "old");
  two.publish();
  one.publish();
  CHECK(read_file(target) == "one");
}

/// What sessions, settings, figures and tables do: the same name, again and again.
TEST_CASE("kill -9 while a file is written over: it is the old one or the new one, 40 times") {
  constexpr std::size_t kBytes = 300'000;
  const TempDir dir;
  const fs::path target = dir.path() / "session.txt";
  write_new_file(target, std::string(kBytes, 'a'), /*overwrite=*/true);
  std::mt19937_64 rng(20261123);
  std::size_t n_left_inside = 0;
  for (int round = 0; round < 40 || (n_left_inside == 0 && round < 400); ++round) {
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      try {
        for (char c = 'b';; c = c == 'z' ? 'a' : static_cast<char>(c + 1))
          write_new_file(target, std::string(kBytes, c), /*overwrite=*/true, Sync::no);
      } catch (...) {
        _exit(1);
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200 + rng() % 5000));
    kill(pid, SIGKILL);
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    REQUIRE(WIFSIGNALED(status));  // it did not end by itself, with an error
    const std::string text = read_file(target);
    REQUIRE(text.size() == kBytes);
    CHECK(text == std::string(kBytes, text[0]));
    n_left_inside += n_files(dir) > 1 ? 1 : 0;
    for (const auto& entry : fs::directory_iterator(dir.path()))
      if (entry.path() != target) fs::remove(entry.path());
  }
  CHECK(n_left_inside > 0);  // some kills came in the middle of a file
}

TEST_CASE("a name taken meanwhile is not overwritten unasked") {
  const TempDir dir;
  NewFile file(dir.path() / "a.txt", /*overwrite=*/false);
  file.write("late");
  dir.write("a.txt", "early");
  CHECK_THROWS_AS(file.publish(), IoError);
  CHECK(read_file(dir.path() / "a.txt") == "early");
}

TEST_CASE("names from other files open nothing but regular files") {
  const TempDir dir;
  REQUIRE(::mkfifo((dir.path() / "pipe").c_str(), 0600) == 0);
  for (const fs::path& file : {fs::path("/dev/zero"), dir.path() / "pipe", dir.path()})
    CHECK_THROWS_AS(read_regular_file(file, 100), IoError);
  CHECK(read_regular_file(dir.write("a", "abc"), 3) == "abc");
  CHECK_SAYS_AS(IoError, read_regular_file(dir.path() / "a", 2), "is longer than");
}

TEST_CASE("what is on its way is gone before a signal ends the process") {
  const TempDir dir;
  const fs::path done = dir.path() / "done.txt";
  const pid_t child = ::fork();
  if (child == 0) {
    NewFile half(dir.path() / "half.txt", /*overwrite=*/false);
    half.write("half");
    write_new_file(done, "whole", /*overwrite=*/false);
    remove_unfinished_files();
    ::_exit(7);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WEXITSTATUS(status) == 7);
  CHECK(read_file(done) == "whole");
  CHECK(n_files(dir) == 1);
}

TEST_CASE("temporary files of killed processes go, those of living ones and of the user stay") {
  const TempDir dir;
  const fs::path target = dir.path() / "a.txt";
  const auto make = [&](const std::string& name, std::chrono::hours age) {
    const fs::path file = dir.write(name, "x");
    fs::last_write_time(file, fs::last_write_time(file) - age);
    return file;
  };
  const std::chrono::hours long_ago{2}, now{0};
  const fs::path dead = make("a.txt.0123456789abcdef.part", long_ago);
  const std::vector<fs::path> kept = {
      make("a.txt.fedcba9876543210.part", now), make("a.txt.part", long_ago),
      make("a.txt.0123456789abcdeX.part", long_ago), make("b.txt.0123456789abcdef.part", long_ago),
      make("a.txt.0123456789abcdef", long_ago)};
  NewFile alive(target, /*overwrite=*/false);
  alive.write("half");
  fs::last_write_time(alive.temporary(), fs::last_write_time(dead));
  remove_old_temporaries(target);
  CHECK(!fs::exists(dead));
  for (const fs::path& file : kept) {
    INFO(file);
    CHECK(fs::exists(file));
  }
  CHECK(fs::exists(alive.temporary()));
}

}  // namespace kvscope::test::new_file_test
