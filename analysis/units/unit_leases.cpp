#include "analysis/units/unit_leases.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "analysis/units/unit_file.hpp"
#include "core/base/error.hpp"
#include "core/base/new_file.hpp"

namespace kvscope {

namespace {

namespace fs = std::filesystem;

constexpr const char* kAgain = ".again";

double seconds_since(fs::file_time_type time) {
  return std::chrono::duration<double>(fs::file_time_type::clock::now() - time).count();
}

}  // namespace

bool is_straggler(double seconds, double mean_of_finished) {
  return seconds >= std::max(kStragglerSeconds, kStragglerFactor * mean_of_finished);
}

UnitLeases::UnitLeases(std::vector<std::string> ids) : UnitLeases(std::move(ids), 0, 1, {}, {}) {}

UnitLeases::UnitLeases(std::vector<std::string> ids, std::size_t rank, std::size_t size,
                       fs::path leases, fs::path units)
    : ids_(std::move(ids)), leases_(std::move(leases)), units_(std::move(units)) {
  for (const bool is_own : {true, false}) {
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      if ((i % size == rank) == is_own) order_.push_back(i);
    }
  }
}

bool UnitLeases::is_done(const std::string& id) const {
  std::error_code error;
  return fs::exists(unit_file(units_, id), error) || fs::exists(failed_file(units_, id), error);
}

bool UnitLeases::take(const std::string& id, const char* again) const {
  if (is_done(id)) return false;
  const fs::path file = leases_ / (id + again);
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0 && errno != EEXIST)
    throw IoError("cannot make {}: {}", file.string(), std::strerror(errno));
  if (fd < 0) return false;
  ::close(fd);
  // Its worker may have finished it, and let go of the lease, between the two calls.
  if (!is_done(id)) return true;
  remove_quietly(file);
  return false;
}

std::optional<std::string> UnitLeases::next_free() {
  while (at_ < order_.size()) {
    const std::string& id = ids_[order_[at_++]];
    if (!leases_.empty() && !take(id)) continue;
    own_.insert(id);
    return id;
  }
  return std::nullopt;
}

std::optional<std::string> UnitLeases::next_straggler(bool& is_any) {
  std::set<std::string> leases;
  std::vector<std::pair<fs::file_time_type, std::string>> running;
  std::error_code error;
  for (auto entry = fs::directory_iterator(leases_, error);
       !error && entry != fs::directory_iterator(); entry.increment(error))
    leases.insert(entry->path().filename().string());
  if (error) throw IoError("cannot read {}: {}", leases_.string(), error.message());
  for (const std::string& id : ids_) {
    if (own_.contains(id) || !leases.contains(id) || leases.contains(id + kAgain) || is_done(id))
      continue;
    const fs::file_time_type since = fs::last_write_time(leases_ / id, error);
    if (!error) running.emplace_back(since, id);
  }
  is_any = !running.empty();
  std::ranges::sort(running);
  for (const auto& [since, id] : running) {
    const double mean = n_finished_ == 0 ? 0.0 : seconds_ / static_cast<double>(n_finished_);
    if (!is_straggler(seconds_since(since), mean)) break;
    if (!take(id, kAgain)) continue;
    own_.insert(id);
    return id;
  }
  return std::nullopt;
}

std::optional<std::string> UnitLeases::next(const std::stop_token& stop) {
  for (;;) {
    if (stop.stop_requested()) throw Interrupted("units: stopped before the next one");
    if (auto id = next_free()) return id;
    if (leases_.empty()) return std::nullopt;
    bool is_any = false;
    if (auto id = next_straggler(is_any)) return id;
    if (!is_any) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

void UnitLeases::finished(const std::string& id, double seconds) {
  seconds_ += seconds;
  ++n_finished_;
  if (leases_.empty()) return;
  remove_quietly(leases_ / id);
  remove_quietly(leases_ / (id + kAgain));
}

}  // namespace kvscope
