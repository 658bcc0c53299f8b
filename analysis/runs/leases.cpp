#include "analysis/runs/leases.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "core/base/descriptor.hpp"
#include "core/base/error.hpp"
#include "core/base/new_file.hpp"
#include "core/base/number_text.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kLook(500);
constexpr int kLooksBetweenTouches = 10;
/// A worker that touched nothing while it was watched for so long is dead.
constexpr double kDeadSeconds = 60.0;
/// A lease without a name: its worker's machine lost power before the name was on disk.
constexpr double kNamelessSeconds = 2.0;
constexpr std::size_t kMostOfLease = 4096;

/// HOST-PID of a worker's name.
std::pair<std::string, std::string> place_of(const std::string& worker) {
  const std::size_t number = worker.rfind('-');
  const std::size_t pid = number == std::string::npos ? number : worker.rfind('-', number - 1);
  if (pid == std::string::npos) return {};
  return {worker.substr(0, pid), worker.substr(pid + 1, number - pid - 1)};
}

/// Whether a process of this machine has ended; one that nobody has waited for (a zombie), too.
bool has_ended(pid_t pid) {
  if (::kill(pid, 0) != 0) return errno == ESRCH;
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  const std::string line{std::istreambuf_iterator<char>(stat), {}};
  const std::size_t name_end = line.rfind(") ");
  return name_end != line.npos && line.size() > name_end + 2 && line[name_end + 2] == 'Z';
}

}  // namespace

Lease::Lease(fs::path file, bool is_shared, const std::stop_token& caller)
    : file_(std::move(file)),
      is_shared_(is_shared),
      caller_stops_(caller, StopAsked{stop_}),
      touching_([this](const std::stop_token& end) { touch(end); }) {}

Lease::~Lease() {
  remove_quietly(file_);
}

void Lease::touch(const std::stop_token& end) {
  std::unique_lock lock(mutex_);
  for (int looks = 1; !wake_.wait_for(lock, end, kLook, [&] { return end.stop_requested(); });
       ++looks) {
    if (end.stop_requested()) return;
    struct stat at {};
    if (::stat(file_.c_str(), &at) != 0) {
      if (errno == ENOENT) stop_.request_stop();  // another worker has answered the item
      continue;
    }
    if (looks % kLooksBetweenTouches == 0)
      ::utimensat(AT_FDCWD, file_.c_str(), nullptr, /*flags=*/0);
  }
}

void Lease::answered() const {
  const fs::path stem = file_.parent_path() / file_.stem();
  for (int number = 1; number <= kMostTries + 1; ++number)
    remove_quietly(fmt::format("{}.{}", stem.string(), number));
}

Leases::Leases(fs::path folder, std::string worker)
    : folder_(std::move(folder)), worker_(std::move(worker)) {}

std::unique_ptr<Lease> Leases::make(const std::string& key, int number, bool is_shared,
                                    const std::stop_token& stop) const {
  fs::path file = folder_ / fmt::format("{}.{}", key, number);
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  Descriptor made(::open(file.c_str(), kFlags, 0666));
  if (made.get() < 0 && errno == ENOENT) {
    std::error_code ignored;
    fs::create_directories(folder_, ignored);
    made = Descriptor(::open(file.c_str(), kFlags, 0666));
  }
  if (made.get() < 0 && errno != EEXIST)
    throw IoError("cannot make {}: {}", file.string(), std::strerror(errno));
  if (made.get() < 0) return nullptr;
  try {
    write_all(made.get(), worker_, file.string());
  } catch (...) {
    remove_quietly(file);
    throw;
  }
  made.close();
  return std::make_unique<Lease>(std::move(file), is_shared, stop);
}

std::unique_ptr<Lease> Leases::take(const std::string& key, const std::stop_token& stop) {
  // Behind a dead worker's lease, which somebody may have removed, a living one may stand.
  std::error_code error;
  for (int number = 2; number <= kMostTries + 1; ++number) {
    if (fs::exists(folder_ / fmt::format("{}.{}", key, number), error)) return nullptr;
  }
  return make(key, 1, /*is_shared=*/false, stop);
}

bool Leases::is_dead(const fs::path& file, Seen& seen) const {
  std::error_code error;
  const fs::file_time_type touched = fs::last_write_time(file, error);
  if (error) return false;  // it was just given back
  if (touched != seen.touched) {
    seen.touched = touched;
    seen.since = Stopwatch();
  }
  const bool is_nameless = fs::file_size(file, error) == 0 && !error;
  if (seen.since.seconds() > (is_nameless ? kNamelessSeconds : kDeadSeconds)) return true;
  const auto pid = pid_here(file);
  return pid && has_ended(*pid);
}

std::optional<pid_t> Leases::pid_here(const fs::path& file) const {
  std::string holder;
  try {
    holder = read_regular_file(file, kMostOfLease);
  } catch (const Error&) {
    return std::nullopt;
  }
  const auto [host, pid] = place_of(holder);
  return host == place_of(worker_).first ? number_from<pid_t>(pid) : std::nullopt;
}

bool Leases::is_held_here() const {
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder_, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const auto pid = pid_here(entry->path());
    const auto touched = fs::last_write_time(entry->path(), error);
    const auto age = fs::file_time_type::clock::now() - touched;
    if (pid && *pid != ::getpid() && !error && age < std::chrono::duration<double>(kDeadSeconds) &&
        !has_ended(*pid))
      return true;
    error.clear();
  }
  return false;
}

std::map<std::string, std::vector<Leases::Holder>> Leases::holders() {
  std::map<std::string, std::vector<Holder>> holders;
  std::map<std::string, Seen> seen;
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder_, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const std::size_t dot = name.rfind('.');
    const auto number = number_from<int>(name.substr(std::min(dot, name.size() - 1) + 1));
    if (dot == std::string::npos || !number) continue;
    Seen& own = seen[name] = seen_.contains(name) ? seen_.at(name) : Seen{};
    const bool dead = is_dead(entry->path(), own);
    holders[name.substr(0, dot)].push_back({entry->path(), *number, dead, own.begin.seconds()});
  }
  if (error && error != std::errc::no_such_file_or_directory)
    throw IoError("cannot read {}: {}", folder_.string(), error.message());
  seen_ = std::move(seen);
  for (auto& [key, of_key] : holders) std::ranges::sort(of_key, {}, &Holder::number);
  return holders;
}

std::unique_ptr<Lease> Leases::take_over(const std::string& key, double mean,
                                         const std::stop_token& stop, int most_dead, int& n_dead) {
  const auto all = holders();
  const auto found = all.find(key);
  n_dead = 0;
  if (found == all.end()) return make(key, 1, /*is_shared=*/false, stop);
  int n_alive = 0;
  double seconds = 0.0;
  for (const Holder& holder : found->second) {
    (holder.is_dead ? n_dead : n_alive) += 1;
    if (!holder.is_dead) seconds = holder.seconds;
  }
  const bool is_straggler =
      n_alive == 1 && seconds >= std::max(kStragglerSeconds, kStragglerFactor * mean);
  if (n_dead >= most_dead || (n_alive > 0 && !is_straggler)) return nullptr;
  return make(key, found->second.back().number + 1, n_alive > 0, stop);
}

void Leases::clear_dead() {
  for (const auto& [key, of_key] : holders()) {
    for (const Holder& holder : of_key) {
      if (holder.is_dead) remove_quietly(holder.file);
    }
  }
}

std::vector<std::string> Leases::at_work() {
  std::vector<std::string> keys;
  for (const auto& [key, of_key] : holders()) {
    if (std::ranges::any_of(of_key, [](const Holder& holder) { return !holder.is_dead; }))
      keys.push_back(key);
  }
  return keys;
}

}  // namespace kvscope
