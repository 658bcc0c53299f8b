// Compiled alone: it has the names of system calls in it.
#include "traces/looker.hpp"

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>

#include "core/base/error.hpp"
#include "core/base/huge_pages.hpp"
#include "traces/h5_internal.hpp"

// The limits of a sanitizer's own memory are not ours.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KVSCOPE_NO_MEMORY_LIMIT 1
#endif

namespace kvscope {

namespace {

using Kind = Answer::Kind;

constexpr std::size_t kMostPacket = std::size_t{1} << 16;  // bytes of a question or an answer

/// Of the other process: that it is one, and what its next good answer says.
bool is_looker = false;
std::string& words_to_say() {
  static std::string words;
  return words;
}

/// A question on its way: this, the working directory, a zero, the path. Both ends are the same
/// program, so a pointer to a function means the same in both.
struct QuestionHead {
  FileStamp stamp;
  OpenFunction open = nullptr;
  unsigned options = 0;
};

void set_limit(int resource, std::uint64_t most) {
  rlimit now{};
  ::getrlimit(static_cast<__rlimit_resource>(resource), &now);
  now.rlim_cur = std::min<rlim_t>(most, now.rlim_max);
  ::setrlimit(static_cast<__rlimit_resource>(resource), &now);
}

[[maybe_unused]] std::uint64_t address_space_bytes() {  // sanitizers take no limit
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

/// On top of what the process has and has used.
void allow_one_file(const FileStamp& stamp) {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = static_cast<std::uint64_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec);
  set_limit(RLIMIT_CPU, seconds + Looker::kMostSeconds);
#ifndef KVSCOPE_NO_MEMORY_LIMIT
  set_limit(RLIMIT_AS,
            address_space_bytes() + Looker::kSpareBytes + static_cast<std::uint64_t>(stamp.size));
#else
  (void)stamp;
#endif
}

/// What is allocated here comes from large pages, where the system has them: of small ones each
/// costs a fault, and faults would be most of a look.
void prefer_large_pages() {
#ifdef __GLIBC__
  ::mallopt(M_MMAP_THRESHOLD, 1 << 28);
  ::mallopt(M_TOP_PAD, 4 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 64 << 20);
  char* const before = static_cast<char*>(::sbrk(0));
  std::free(std::malloc(1 << 18));
  char* const after = static_cast<char*>(::sbrk(0));
  if (after > before) prefer_huge_pages(before, static_cast<std::size_t>(after - before));
#endif
}

/// Lets go of what the program has open: its locks, pipes and windows would else live as long as
/// this process.
void keep_only(int socket) {
  const int null = ::open("/dev/null", O_RDWR);
  for (int fd = 0; fd <= 2 && null >= 0; ++fd) ::dup2(null, fd);
  bool is_closed = ::close_range(static_cast<unsigned>(socket) + 1, ~0U, 0) == 0;
  if (socket > 3) {
    is_closed = ::close_range(3, static_cast<unsigned>(socket) - 1, 0) == 0 && is_closed;
  }
  if (is_closed) return;
  rlimit files{};  // a kernel before Linux 5.9
  ::getrlimit(RLIMIT_NOFILE, &files);
  for (int fd = 3; fd < static_cast<int>(std::min<rlim_t>(files.rlim_cur, 1 << 16)); ++fd) {
    if (fd != socket) ::close(fd);
  }
}

Answer look(const QuestionHead& head, const char* folder, const char* path) {
  // If the folder cannot be entered, a relative path leads elsewhere, which the stamp shows.
  (void)!::chdir(folder);
  const std::filesystem::path file(path);
  const auto found = FileStamp::of(file);  // it may be growing: not its size or time
  if (!found || found->device != head.stamp.device || found->inode != head.stamp.inode) {
    return {Kind::elsewhere, ""};
  }
  allow_one_file(head.stamp);
  try {
    words_to_say().clear();
    head.open(file, head.options);
    return {Kind::good, words_to_say()};
  } catch (const ConfigError& error) {
    return {Kind::config_error, error.what()};
  } catch (const IoError& error) {
    return {Kind::io_error, error.what()};
  } catch (const std::bad_alloc&) {
    return {Kind::no_memory, ""};
  } catch (const std::exception& error) {
    return {Kind::format_error, error.what()};
  }
}

/// No destructor, no exit handler, no buffer of the program is run or written twice.
[[noreturn]] void end_here() {
  for (;;) ::kill(::getpid(), SIGKILL);
}

/// The process's whole life.
[[noreturn]] void serve(int socket, Looker::Life life) {
  const pid_t parent = ::getppid();
  is_looker = true;
  h5::Lock::stay_alone();
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGXCPU, SIGTERM, SIGHUP})
    ::signal(signal, SIG_DFL);
  ::signal(SIGINT, SIG_IGN);  // the program decides
  if (life == Looker::Life::stays) keep_only(socket);
  prefer_large_pages();
  set_limit(RLIMIT_CORE, 0);
  static std::array<char, kMostPacket> packet;
  for (;;) {
    const ssize_t n = ::recv(socket, packet.data(), packet.size() - 1, 0);
    if (n < 0 && errno == EINTR) continue;
    QuestionHead head;
    if (n < static_cast<ssize_t>(sizeof head)) end_here();  // the program is gone
    packet[static_cast<std::size_t>(n)] = '\0';
    std::memcpy(&head, packet.data(), sizeof head);
    const char* const folder = packet.data() + sizeof head;
    // The signal comes when the thread ends that made this process, also if the program goes on:
    // so only while it matters, and whoever asks must not take that for the file's fault.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) end_here();
    const Answer answer = look(head, folder, folder + std::strlen(folder) + 1);
    ::prctl(PR_SET_PDEATHSIG, 0);
    std::string text(1, static_cast<char>(answer.kind));
    text += std::string_view(answer.words).substr(0, kMostPacket - 2);
    while (::send(socket, text.data(), text.size(), MSG_NOSIGNAL) < 0 && errno == EINTR) {
    }
  }
}

/// The answer's packet; empty if the process is gone or the time is over.
std::pair<std::string, bool> listen(int socket) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(Looker::kMostWait);
  std::string text(kMostPacket, '\0');
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    pollfd ready{socket, POLLIN, 0};
    const int n_ready =
        ::poll(&ready, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (n_ready < 0 && errno == EINTR) continue;
    if (n_ready == 0) return {"", /*is_late=*/true};
    const ssize_t n = n_ready < 0 ? -1 : ::recv(socket, text.data(), text.size(), 0);
    if (n < 0 && n_ready > 0 && errno == EINTR) continue;
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    return {text, /*is_late=*/false};
  }
}

/// How the process ended and what it used. One that somebody else waited for ended somehow.
std::pair<int, rusage> wait_for(pid_t process) {
  ::kill(process, SIGKILL);
  int status = 0;
  rusage usage{};
  while (::wait4(process, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  return {status, usage};
}

}  // namespace

std::optional<FileStamp> FileStamp::of(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return FileStamp{status.st_dev, status.st_ino, status.st_size, status.st_ctim.tv_sec,
                   status.st_ctim.tv_nsec};
}

Looker::Looker(pid_t process, int socket)
    : owner_(::getpid()), process_(process), socket_(socket) {}

std::unique_ptr<Looker> Looker::start(Life life) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return nullptr;
  pid_t process = -1;
  {
    const h5::Lock lock;  // no other thread is inside HDF5
    process = ::fork();
    if (process == 0) {
      ::close(ends[0]);  // or this process would itself keep the program's end alive
      serve(ends[1], life);
    }
  }
  ::close(ends[1]);
  if (process < 0) {
    ::close(ends[0]);
    return nullptr;
  }
  return std::unique_ptr<Looker>(new Looker(process, ends[0]));
}

Looker::~Looker() {
  ::close(socket_);
  if (is_ours() && process_ >= 0) wait_for(process_);
}

bool Looker::is_here() {
  return is_looker;
}

void Looker::say(std::string words) {
  words_to_say() = std::move(words);
}

bool Looker::is_ours() const {
  return ::getpid() == owner_;
}

Answer Looker::ask(const std::filesystem::path& path, const FileStamp& stamp, OpenFunction open,
                   unsigned options) {
  QuestionHead head;
  head.stamp = stamp;
  head.open = open;
  head.options = options;
  std::string text(sizeof head, '\0');
  std::memcpy(text.data(), &head, sizeof head);
  std::error_code no_folder;
  text += std::filesystem::current_path(no_folder).string() + '\0' + path.string();
  if (text.size() >= kMostPacket) return {Kind::elsewhere, ""};
  while (::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
  const auto [said, is_late] = listen(socket_);
  if (!said.empty()) return {static_cast<Kind>(said.front()), said.substr(1)};
  const auto [status, usage] = wait_for(std::exchange(process_, -1));
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if (is_late) return {Kind::too_long, fmt::format("did not open it within {} s", kMostWait)};
  if (signal == SIGXCPU || usage.ru_utime.tv_sec + usage.ru_stime.tv_sec >= kMostSeconds - 1) {
    return {Kind::too_long, fmt::format("works on it for more than {} s", kMostSeconds)};
  }
  if (signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP) {
    return {
        Kind::ended,
        fmt::format("{}: the process that looks at it first was ended twice (signal {}), by a lack "
                    "of memory or by hand: try again",
                    path.string(), signal)};
  }
  return {Kind::died, fmt::format("crashes on it (signal {})", signal)};
}

}  // namespace kvscope
