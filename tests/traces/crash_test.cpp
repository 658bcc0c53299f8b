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

}  // namespace kvscope::test::crash_test
