// Files on which the HDF5 library itself crashes or does not come to an end: a sentence, in this
// process and in a program.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>

#include "core/base/mapped_file.hpp"
#include "core/trace/result.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/test.hpp"
#include "tests/traces/synthetic.hpp"
#include "traces/h5_internal.hpp"
#include "traces/hdf5_library.hpp"
#include "traces/reader.hpp"
#include "traces/result_file.hpp"
#include "traces/writer.hpp"

namespace kvscope::test::crash_test {

/// How a process ended that did `work` after on_crash_in_hdf5, and what its handler said.
struct Ended {
  int exit_code = -1;  // -1 if a signal ended it
  int signal = 0;
  std::string said;
};

int handler_end = -1;

void say_and_end(const char* file) {  // a signal handler: nothing but write and _exit
  (void)!::write(handler_end, file, std::strlen(file));
  ::_exit(3);
}

Ended end_of(const std::function<void()>& work) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    handler_end = ends[1];
    on_crash_in_hdf5(say_and_end);
    work();
    ::_exit(0);
  }
  ::close(ends[1]);
  Ended ended;
  char buffer[256];
  for (ssize_t n = 0; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    ended.said.append(buffer, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status)) ended.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
  return ended;
}

TEST_CASE("a mapped file that is cut ends the program with its name") {
  if (kSanitizer) SKIP("sanitizers have handlers of their own");
  const TempFolder folder;
  const auto path = folder / "weights";
  const auto touch_cut = [&] {
    spill(path, std::string(100'000, 'x'));
    const MappedFile mapped(path);
    std::filesystem::resize_file(path, 5000);
    const volatile auto* bytes = reinterpret_cast<const volatile char*>(mapped.bytes().data());
    ::_exit(bytes[90'000]);
  };
  const Ended ended = end_of([&] {
    on_crash_in_hdf5(say_and_end, say_and_end);
    touch_cut();
  });
  CHECK(ended.exit_code == 3);
  CHECK(ended.said == path.string());
  CHECK(end_of(touch_cut).signal == SIGBUS);  // without a handler for it
}

// Calls itself until the stack is used up, as HDF5 does on groups in a circle.
int use_up_the_stack(volatile char* above) {
  volatile char frame[4096];
  frame[0] = above == nullptr ? 1 : above[0];
  if (frame[0] == 0) return 0;  // never: the compiler would remark on a function that cannot end
  return use_up_the_stack(frame) + frame[0];
}

TEST_CASE(
    "a crash inside HDF5 ends the program with the file's name, one elsewhere stays what it is") {
  if (kSanitizer) SKIP("sanitizers have handlers of their own");
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    INFO("signal " << signal);
    const Ended inside = end_of([&] {
      const h5::Lock lock("damaged.h5");
      std::raise(signal);
    });
    CHECK(inside.exit_code == 3);
    CHECK(inside.said == "damaged.h5");
    const Ended nested = end_of([&] {
      const h5::Lock lock("outer.h5");
      { const h5::Lock inner("inner.h5"); }
      std::raise(signal);
    });
    CHECK(nested.said == "outer.h5");
    const Ended elsewhere = end_of([&] {
      { const h5::Lock lock("sound.h5"); }
      std::raise(signal);
    });
    CHECK(elsewhere.exit_code == -1);
    CHECK(elsewhere.signal == signal);
    CHECK(elsewhere.said.empty());
  }
  const Ended nameless = end_of([] {
    const h5::Lock lock;
    std::raise(SIGSEGV);
  });
  CHECK(nameless.exit_code == 3);
  CHECK(nameless.said.empty());
}

TEST_CASE("the stack may be used up inside HDF5 too") {
  if (kSanitizer) SKIP("sanitizers have handlers of their own");
  const Ended ended = end_of([] {
    const h5::Lock lock("in_circles.h5");
    ::_exit(use_up_the_stack(nullptr) == 0 ? 7 : 8);
  });
  CHECK(ended.exit_code == 3);
  CHECK(ended.said == "in_circles.h5");
}

/// Bytes written over those at one place of a file.
struct Edit {
  std::size_t at;
  std::string bytes;
};

void check_refused(const std::filesystem::path& file, const std::string& whole,
                   const std::vector<Edit>& edits, const std::function<void()>& open) {
  std::string damaged = whole;
  for (const Edit& edit : edits) damaged.replace(edit.at, edit.bytes.size(), edit.bytes);
  spill(file, damaged);
  INFO(edits.front().at);
  CHECK_HAS(message_of(open), file.string());
}

std::string ones(std::size_t n) {
  return std::string(n, '\xff');
}

// Found by 2,221 mutants of this trace and 1,496 of this result, with HDF5 1.10.8; another version
// lays the file out in another way, and is then asked about other damage.
TEST_CASE("files on which HDF5 crashed are refused with a sentence") {
  if (kThreadSanitizer) SKIP("ThreadSanitizer allows no first look in another process");
  const TempFolder folder;
  const auto trace = folder / "t.h5";
  Plan plan;
  plan.capture.stats = true;
  write_all(make_trace(plan), *create_trace(trace, {}));
  const std::string whole_trace = slurp(trace);
  const auto open_trace = [&] { TraceFile::open(trace); };
  check_refused(trace, whole_trace, {{15952, ones(8)}}, open_trace);
  check_refused(trace, whole_trace, {{4787, "\xd9"}, {704, ones(8)}}, open_trace);

  const auto result = folder / "r.h5";
  {
    const auto output = create_result_file(result, /*overwrite=*/false);
    ResultInfo info{.kind = "quest",
                    .trace_uuids = {"u"},
                    .trace_hashes = {"h"},
                    .trace_files = {"a.h5"},
                    .writer = "w",
                    .created = "2026"};
    output->begin(info);
    output->finish({{"a", 1}});
  }
  const std::string whole_result = slurp(result);
  const auto open_result = [&] { ResultFile::open(result); };
  check_refused(result, whole_result, {{3203, " "}, {808, ones(8)}}, open_result);
  check_refused(result, whole_result, {{704, ones(8)}, {1326, "m"}}, open_result);
}

}  // namespace kvscope::test::crash_test
