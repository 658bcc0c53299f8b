#include "traces/first_look.hpp"

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <set>

#include "core/base/error.hpp"

namespace kvscope {

namespace {

using Kind = Answer::Kind;

/// With more than this in use the process does not stay: it keeps what the program frees
/// or writes over.
constexpr std::uint64_t kMostMemoryToCopy = std::uint64_t{256} << 20;

class SeenFiles {
 public:
  bool has(const FileStamp& stamp) {
    const std::lock_guard lock(mutex_);
    return stamps_.contains(stamp);
  }
  void add(const FileStamp& stamp) {
    const std::lock_guard lock(mutex_);
    if (stamps_.size() >= 10000) stamps_.clear();
    stamps_.insert(stamp);
  }

 private:
  std::mutex mutex_;
  std::set<FileStamp> stamps_;
};

SeenFiles& seen_files() {
  static SeenFiles files;
  return files;
}

struct StayingLooker {
  std::mutex mutex;  // never waited for: in a fork of the program it may be held for ever
  std::unique_ptr<Looker> looker;
};

StayingLooker& staying() {
  static StayingLooker one;
  return one;
}

std::uint64_t resident_bytes() {
  std::uint64_t address_space = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> address_space >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

#ifdef __SANITIZE_ADDRESS__
std::ptrdiff_t n_threads() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return std::distance(begin(threads), end(threads));
}
#endif

/// Empty if the process that stays cannot tell.
std::optional<Answer> ask_staying(const std::filesystem::path& path, const FileStamp& stamp,
                                  OpenFunction open, unsigned options) {
  const std::unique_lock lock(staying().mutex, std::try_to_lock);
  if (!lock) return std::nullopt;
  std::unique_ptr<Looker>& looker = staying().looker;
  if (looker && !looker->is_ours()) looker.reset();
  for (;;) {
    const bool is_new = looker == nullptr;
    if (is_new && resident_bytes() <= kMostMemoryToCopy)
      looker = Looker::start(Looker::Life::stays);
    if (!looker) return std::nullopt;
    Answer answer = looker->ask(path, stamp, open, options);
    if (answer.kind == Kind::good) return answer;
    looker.reset();
    if (answer.kind == Kind::elsewhere) return std::nullopt;
    if (is_new || answer.kind == Kind::too_long) return answer;
  }
}

[[noreturn]] void refuse(const std::filesystem::path& path, const Answer& answer) {
  switch (answer.kind) {
    case Kind::config_error:
      throw ConfigError(answer.words);
    case Kind::io_error:
    case Kind::ended:
      throw IoError(answer.words);
    case Kind::format_error:
      throw FormatError(answer.words);
    case Kind::no_memory:
      throw FormatError(
          "{}: opening it takes more than {} MiB beyond its size: the file is damaged or malicious",
          path.string(), Looker::kSpareBytes >> 20U);
    case Kind::elsewhere:
      throw IoError("{}: it became another file while it was opened", path.string());
    default:
      throw FormatError("{}: the HDF5 library {}: the file is damaged or malicious", path.string(),
                        answer.words);
  }
}

}  // namespace

FirstLook::FirstLook(const std::filesystem::path& path, OpenFunction open, unsigned options) {
  const auto stamp = FileStamp::of(path);
  // What is no regular file is refused before HDF5 sees it, with the right words.
  if (!stamp || Looker::is_here()) return;
  is_good_ = seen_files().has(*stamp);
  if (is_good_) return;
    // ThreadSanitizer forbids the fork; AddressSanitizer's locks may stay held in the other process
    // for ever where another thread held one (until GCC 14).
#ifdef __SANITIZE_THREAD__
  return;
#elif defined(__SANITIZE_ADDRESS__)
  if (n_threads() > 1) return;
#endif
  std::optional<Answer> answer = ask_staying(path, *stamp, open, options);
  int n_ended = answer && answer->kind == Kind::ended ? 1 : 0;
  // One more try after a process that somebody ended: long work must not hang on one process.
  while (!answer || (answer->kind == Kind::ended && n_ended < 2)) {
    own_ = Looker::start(Looker::Life::one_question);
    if (!own_) return;  // no process to be had: without the look
    answer = own_->ask(path, *stamp, open, options);
    if (answer->kind == Kind::ended) ++n_ended;
  }
  if (answer->kind != Kind::good) {
    own_.reset();
    refuse(path, *answer);
  }
  seen_files().add(*stamp);
  is_good_ = true;
}

pid_t FirstLook::staying_process() {
  const std::lock_guard lock(staying().mutex);
  const Looker* looker = staying().looker.get();
  return looker != nullptr && looker->is_ours() ? looker->process() : -1;
}

}  // namespace kvscope
