// kvscope-explorer: the window program, and its screenshots without one.
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>

#include "analysis/options/exit_code.hpp"
#include "core/base/escape.hpp"
#include "gui/app/command_line.hpp"
#include "gui/app/run.hpp"
#include "traces/hdf5_library.hpp"

namespace {

int fail(const std::string& words, kvscope::ExitCode code) {
  const std::string line = kvscope::short_message(kvscope::terminal_text(words));
  std::fputs(fmt::format("kvscope-explorer: {}\n", line).c_str(), stderr);
  return code;
}

// In a signal handler: nothing but system calls.
void end_with(const char* file, const char* what) {
  for (const char* part : {"kvscope-explorer: ", file, what}) {
    if (::write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  }
  ::_exit(kvscope::kInputError);
}

void end_after_crash(const char* file) {
  end_with(file, ": the HDF5 library crashed on it: the file is damaged\n");
}

void end_after_loss(const char* file) {
  end_with(file, ": cannot be read any more: it was cut while it was in use, or its disk failed\n");
}

/// What the cache drops goes back to the system. By default glibc stops mapping large blocks one by
/// one as soon as it has freed one: heads and rows of megabytes then lie in heaps (one per thread)
/// between small things that stay, and their room is kept.
void give_memory_back() {
#ifdef __GLIBC__
  constexpr int kMappedFrom = 512 << 10;  // bytes
  ::mallopt(M_MMAP_THRESHOLD, kMappedFrom);
  ::mallopt(M_TRIM_THRESHOLD, 16 << 20);
  ::mallopt(M_ARENA_MAX, 2);
#endif
}

}  // namespace

// The one place where exceptions of the program's start end; later ones become sentences in the
// window.
int main(int argc, char** argv) {
  using namespace kvscope;
  give_memory_back();
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit ends in a sentence, not in a signal
  on_crash_in_hdf5(end_after_crash, end_after_loss);
  try {
    const gui::CommandLine line = gui::parse_command_line(argc, argv);
    if (!line.text.empty()) {
      std::fputs(line.text.c_str(), stdout);
      return std::fflush(stdout) == 0 ? kOk : kInputError;
    }
    return gui::run(line);
  } catch (const UsageError& e) {
    return fail(fmt::format("{} (see kvscope-explorer --help)", e.what()), kUsageError);
  } catch (const ConfigError& e) {
    return fail(e.what(), kUsageError);
  } catch (const std::exception& e) {
    return fail(e.what(), kInputError);
  }
}
