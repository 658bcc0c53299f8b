// The process that takes first looks: it stays, is replaced, and never outlives its program.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "tests/support/sanitizers.hpp"
#include "tests/support/test.hpp"
#include "tests/traces/synthetic.hpp"
#include "traces/first_look.hpp"
#include "traces/look_at_files.hpp"
#include "traces/reader.hpp"
#include "traces/writer.hpp"

namespace kvscope::test::first_look_test {

void do_nothing(const fs::path&, unsigned) {}
void crash(const fs::path&, unsigned) {
  std::raise(SIGSEGV);
}

/// Crashes only where it is asked for the second time, as memory that an earlier
/// file damaged would.
int n_asked = 0;
void crash_if_asked_before(const fs::path&, unsigned) {
  if (++n_asked > 1) std::raise(SIGSEGV);
}

std::string said_of(const fs::path& file, OpenFunction open, unsigned options = 0) {
  try {
    const FirstLook look(file, open, options);
    return look.is_good() ? "good" : "not looked";
  } catch (const Error& error) {
    return error.what();
  }
}

/// Files that were not looked at before.
class NewFiles {
 public:
  fs::path next() {
    const fs::path file = folder_ / ("f" + std::to_string(n_++));
    spill(file, "any file");
    return file;
  }

 private:
  TempFolder folder_;
  int n_ = 0;
};

bool is_there(pid_t process) {
  return ::kill(process, 0) == 0;
}

/// True if the process is gone, or waits only for somebody to ask how it ended.
bool ends(pid_t process) {
  for (int i = 0; i < 3000; ++i) {
    if (!is_there(process)) return true;
    std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
    std::string id, name, state;
    stat >> id >> name >> state;
    if (state == "Z") return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST_CASE("one process looks at many files, and another one after a crash") {
  if (kSanitizer) SKIP("sanitizers forbid the fork, or use more memory than is copied");
  NewFiles files;
  REQUIRE(said_of(files.next(), do_nothing) == "good");
  const pid_t first = FirstLook::staying_process();
  REQUIRE(first > 0);
  for (int i = 0; i < 200; ++i) REQUIRE(said_of(files.next(), do_nothing) == "good");
  CHECK(FirstLook::staying_process() == first);

  CHECK_HAS(said_of(files.next(), crash), "crashes on it (signal 11)");
  CHECK_FALSE(is_there(first));  // and nobody has to wait for it
  CHECK(said_of(files.next(), do_nothing) == "good");
  const pid_t second = FirstLook::staying_process();
  CHECK(second > 0);
  CHECK(second != first);
  // Also if it was killed while it had nothing to do.
  REQUIRE(::kill(second, SIGKILL) == 0);
  CHECK(said_of(files.next(), do_nothing) == "good");
  CHECK(said_of(
            files.next(),
            [](const fs::path&, unsigned options) {
              throw FormatError("asked with " + std::to_string(options));
            },
            7) == "asked with 7");
}

TEST_CASE("a file is not blamed for what the files before it did") {
  if (kSanitizer) SKIP("sanitizers forbid the fork, or use more memory than is copied");
  NewFiles files;
  (void)said_of(files.next(), crash);  // from here on a new process
  for (int i = 0; i < 4; ++i) CHECK(said_of(files.next(), crash_if_asked_before) == "good");
}

TEST_CASE("a path means the same file to the process that looks") {
  NewFiles files;
  (void)said_of(files.next(), do_nothing);  // it may stay from here on
  const TempFolder folder;
  write_all(make_trace(Plan{}), *create_trace(folder / "t.h5", {}));
  const fs::path before = fs::current_path();
  fs::current_path((folder / "t.h5").parent_path());
  CHECK(TraceFile::open("t.h5").tokens().size() > 0);
  fs::current_path(before);
  // A descriptor that only this process has: /dev/stdin is such a name.
  write_all(make_trace(Plan{}), *create_trace(folder / "u.h5", {}));
  const int fd = ::open((folder / "u.h5").c_str(), O_RDONLY);
  REQUIRE(fd >= 0);
  CHECK(TraceFile::open("/proc/self/fd/" + std::to_string(fd)).tokens().size() > 0);
  ::close(fd);
}

TEST_CASE("the process that stays holds no file of its program") {
  if (kSanitizer) SKIP("sanitizers forbid the fork, or use more memory than is copied");
  NewFiles files;
  (void)said_of(files.next(), crash);
  const fs::path locked = files.next();
  const int fd = ::open(locked.c_str(), O_RDONLY);
  REQUIRE(::flock(fd, LOCK_EX | LOCK_NB) == 0);
  REQUIRE(said_of(files.next(), do_nothing) == "good");  // starts a process
  REQUIRE(FirstLook::staying_process() > 0);
  ::close(fd);
  const int again = ::open(locked.c_str(), O_RDONLY);
  CHECK(::flock(again, LOCK_EX | LOCK_NB) == 0);
  ::close(again);
}

/// A program that takes a look and then, busy with another one or idle, waits to be killed. Gives
/// the program and its looker.
std::pair<pid_t, pid_t> program_with_looker(const fs::path& file, const fs::path& slow) {
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  const pid_t program = ::fork();
  if (program == 0) {
    (void)said_of(file, do_nothing);
    const pid_t looker = FirstLook::staying_process();
    (void)!::write(pipe[1], &looker, sizeof looker);
    ::close(pipe[1]);
    if (!slow.empty()) (void)said_of(slow, [](const fs::path&, unsigned) { ::pause(); });
    for (;;) ::pause();
  }
  ::close(pipe[1]);
  pid_t looker = -1;
  REQUIRE(::read(pipe[0], &looker, sizeof looker) == sizeof looker);
  ::close(pipe[0]);
  return {program, looker};
}

TEST_CASE("a killed program leaves no process that looks") {
  if (kSanitizer) SKIP("sanitizers forbid the fork, or use more memory than is copied");
  NewFiles files;
  for (const bool is_busy : {false, true}) {
    CAPTURE(is_busy);
    const auto [program, looker] =
        program_with_looker(files.next(), is_busy ? files.next() : fs::path());
    REQUIRE(looker > 0);
    CHECK(looker != FirstLook::staying_process());  // a fork does not use its parent's
    REQUIRE(::kill(program, SIGKILL) == 0);
    REQUIRE(::waitpid(program, nullptr, 0) == program);
    CHECK(ends(looker));
  }
}

TEST_CASE("threads that end take no look with them") {
  if (kSanitizer) SKIP("sanitizers forbid the fork, or use more memory than is copied");
  NewFiles files;
  (void)said_of(files.next(), crash);
  std::string said;
  for (int i = 0; i < 5; ++i) {
    std::jthread([&] { said = said_of(files.next(), do_nothing); }).join();
    CHECK(said == "good");
    CHECK(said_of(files.next(), do_nothing) == "good");
  }
}

/// Ends its own process by SIGKILL until the file has as many bytes as `options` says.
void end_by_hand(const fs::path& file, unsigned options) {
  if (fs::file_size(file) >= options) return;
  std::ofstream(file, std::ios::app | std::ios::binary) << '+';
  std::raise(SIGKILL);
}

TEST_CASE("a look whose process somebody ends is tried once more") {
  if (kSanitizer) SKIP("sanitizers forbid the fork, or use more memory than is copied");
  NewFiles files;
  const fs::path once = files.next();
  const auto size = static_cast<unsigned>(fs::file_size(once));
  CHECK(said_of(once, end_by_hand, size + 1) == "good");
  CHECK(fs::file_size(once) == size + 1);
  const fs::path often = files.next();
  const std::string said = said_of(often, end_by_hand, size + 10);
  CHECK_HAS(said, "was ended twice (signal 9)");
  CHECK(fs::file_size(often) <= size + 3);  // one more if a process was there already
}

/// Says the file's name; of a file called "bad" it crashes, of "odd" it throws.
void say_name(const fs::path& file, unsigned) {
  if (file.filename() == "bad") std::raise(SIGSEGV);
  if (file.filename() == "odd") throw FormatError("odd");
  Looker::say(Looker::is_here() ? file.filename().string() : "not there");
}

TEST_CASE("many files are looked at in several processes, of which any may die") {
  if (kSanitizer) SKIP("sanitizers forbid the fork, or use more memory than is copied");
  const TempFolder folder;
  std::vector<fs::path> paths;
  for (int i = 0; i < 40; ++i) {
    const std::string name = i % 10 == 3 ? "bad" : i % 10 == 7 ? "odd" : "f" + std::to_string(i);
    fs::create_directory(folder / std::to_string(i));
    paths.push_back(folder / std::to_string(i) / name);
    spill(paths.back(), "any file");
  }
  paths.push_back(folder / "not there");
  const int n_processes = GENERATE(1, 3);
  const auto said = look_at_files(paths, say_name, n_processes);
  REQUIRE(said.size() == paths.size());
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::string name = paths[i].filename().string();
    INFO(name);
    CHECK(said[i].has_value() == name.starts_with('f'));
    if (said[i]) CHECK(*said[i] == name);
  }
  CHECK_FALSE(Looker::is_here());
}

}  // namespace kvscope::test::first_look_test
