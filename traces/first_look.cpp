// Compiled alone: it has the names of system calls in it.
#include "traces/first_look.hpp"

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/huge_pages.hpp"
#include "traces/h5_internal.hpp"

// The limits of a sanitizer's own memory are not ours. ThreadSanitizer forbids the fork; AddressSanitizer's locks may stay
// held in the child for ever where another thread held one (until GCC 14).
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KVSCOPE_NO_MEMORY_LIMIT 1
#endif

namespace kvscope {

namespace {

constexpr int kMostSeconds = 10;  // of processor time
constexpr int kMostWait = 30;     // seconds by the clock
constexpr std::uint64_t kSpareBytes = std::uint64_t{1} << 30;

/// What the child says: one letter, then the words of an error.
enum Verdict : char { kGood = 'g', kConfig = 'c', kIo = 'i', kFormat = 'f', kMemory = 'm' };

/// What tells one state of a file from another.
using Stamp = std::tuple<dev_t, ino_t, off_t, std::int64_t, std::int64_t>;

std::optional<Stamp> stamp_of(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return Stamp{status.st_dev, status.st_ino, status.st_size, status.st_ctim.tv_sec,
               status.st_ctim.tv_nsec};
}

class SeenFiles {
 public:
  bool has(const Stamp& stamp) {
    const std::lock_guard lock(mutex_);
    return stamps_.contains(stamp);
  }
  void add(const Stamp& stamp) {
    const std::lock_guard lock(mutex_);
    if (stamps_.size() >= 10000) stamps_.clear();
    stamps_.insert(stamp);
  }

 private:
  std::mutex mutex_;
  std::set<Stamp> stamps_;
};

SeenFiles& seen_files() {
  static SeenFiles files;
  return files;
}

std::uint64_t address_space_bytes() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

#ifdef __SANITIZE_ADDRESS__
std::ptrdiff_t n_threads() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return std::distance(begin(threads), end(threads));
}
#endif

void limit(int resource, std::uint64_t most) {
  rlimit now{};
  ::getrlimit(static_cast<__rlimit_resource>(resource), &now);
  now.rlim_cur = std::min<rlim_t>(most, now.rlim_max);
  ::setrlimit(static_cast<__rlimit_resource>(resource), &now);
}

void tell(int fd, char verdict, std::string_view words) {
  std::string text(1, verdict);
  text += words;
  for (std::string_view left = text; !left.empty();) {
    const ssize_t n = ::write(fd, left.data(), left.size());
    if (n < 0 && errno != EINTR) return;
    if (n > 0) left.remove_prefix(static_cast<std::size_t>(n));
  }
}

/// What the child allocates comes from large pages, where the system has them: of small ones each costs
/// a fault, and faults would be most of the look.
void prefer_large_pages() {
#ifdef __GLIBC__
  ::mallopt(M_MMAP_THRESHOLD, 1 << 28);
  ::mallopt(M_TOP_PAD, 4 << 20);
  char* const before = static_cast<char*>(::sbrk(0));
  std::free(std::malloc(1 << 18));
  char* const after = static_cast<char*>(::sbrk(0));
  if (after > before) prefer_huge_pages(before, static_cast<std::size_t>(after - before));
#endif
}

/// The child's whole life.
[[noreturn]] void look(const std::function<void()>& open, int fd, std::uint64_t most_bytes) {
  h5::Lock::stay_alone();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGXCPU, SIGTERM})
    ::signal(signal, SIG_DFL);
  ::signal(SIGINT, SIG_IGN);  // the parent decides
  prefer_large_pages();
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_CPU, kMostSeconds);
#ifndef KVSCOPE_NO_MEMORY_LIMIT
  limit(RLIMIT_AS, most_bytes);
#else
  (void)most_bytes;
#endif
  try {
    open();
    tell(fd, kGood, "");
  } catch (const ConfigError& error) {
    tell(fd, kConfig, error.what());
  } catch (const IoError& error) {
    tell(fd, kIo, error.what());
  } catch (const std::bad_alloc&) {
    tell(fd, kMemory, "");
  } catch (const std::exception& error) {
    tell(fd, kFormat, error.what());
  }
  for (;;) ::kill(::getpid(), SIGKILL);
}

/// Everything the child says, until it said that all is good, is gone, or the time is over.
std::string listen(int fd) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(kMostWait);
  std::string text;
  char buffer[4096];
  while (text.empty() || text.front() != kGood) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    pollfd ready{fd, POLLIN, 0};
    const int n_ready = ::poll(&ready, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (n_ready < 0 && errno == EINTR) continue;
    if (n_ready <= 0) return text;
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(n));
  }
  return text;
}

/// How the child ended and what it used.
std::pair<int, rusage> wait_for(pid_t child) {
  ::kill(child, SIGKILL);
  int status = 0;
  rusage usage{};
  while (::wait4(child, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  return {status, usage};
}

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& why) {
  throw FormatError(fmt::format("{}: the HDF5 library {}: the file is damaged or made to do harm",
                                path.string(), why));
}

}  // namespace

FirstLook::FirstLook(const std::filesystem::path& path, const std::function<void()>& open) {
  const auto stamp = stamp_of(path);
  // What is no regular file is refused before HDF5 sees it, with the right words.
  if (!stamp) return;
  is_good_ = seen_files().has(*stamp);
  if (is_good_) return;
#ifdef __SANITIZE_THREAD__
  return;
#elif defined(__SANITIZE_ADDRESS__)
  if (n_threads() > 1) return;
#endif
  const std::uint64_t most_bytes =
      address_space_bytes() + kSpareBytes + static_cast<std::uint64_t>(std::get<2>(*stamp));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return;
  pid_t child = -1;
  {
    const h5::Lock lock;  // no other thread is inside HDF5
    child = ::fork();
    if (child == 0) look(open, ends[1], most_bytes);
  }
  ::close(ends[1]);
  if (child < 0) {  // no process to be had: without the look, as before there was one
    ::close(ends[0]);
    return;
  }
  const std::string said = listen(ends[0]);
  ::close(ends[0]);
  if (!said.empty() && said.front() == kGood) {
    seen_files().add(*stamp);
    child_ = child;  // its memory takes a millisecond to go, in which the file is opened here
    is_good_ = true;
    return;
  }
  const auto [status, usage] = wait_for(child);
  if (said.empty()) {
    const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (signal == SIGXCPU || usage.ru_utime.tv_sec + usage.ru_stime.tv_sec >= kMostSeconds - 1)
      fail(path, fmt::format("works on it for more than {} s", kMostSeconds));
    if (signal == SIGKILL) fail(path, fmt::format("did not open it within {} s", kMostWait));
    fail(path, fmt::format("crashes on it (signal {})", signal));
  }
  const std::string words = said.substr(1);
  switch (said.front()) {
    case kConfig:
      throw ConfigError(words);
    case kIo:
      throw IoError(words);
    case kMemory:
      throw FormatError(fmt::format("{}: opening it takes more than {} MiB beyond its size: the file "
                                    "is damaged or made to do harm",
                                    path.string(), kSpareBytes >> 20U));
    default:
      throw FormatError(words);
  }
}

FirstLook::~FirstLook() {
  if (child_ >= 0) wait_for(child_);
}

}  // namespace kvscope
