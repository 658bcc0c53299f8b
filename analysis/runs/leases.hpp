// Who is at which item of a store, among workers that share nothing but its folder.
//
// A worker takes an item by making the file LEASES/KEY.1, which the file system lets one of them do
// (O_EXCL, also on NFS 3 and later), touches it while it lives, and removes it at the end. Where a
// worker died, or takes long, another takes KEY.2. No clock decides: a worker is dead if its
// process is none of this machine's any more, or if its file was not touched while another one
// watched it for a minute (two seconds if it is empty, as after a power cut); one that only slept
// makes an item be done twice, with the same answer.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "core/base/stopwatch.hpp"

namespace kvscope {

/// An item is given out twice once it takes so many times the mean of those that were finished.
inline constexpr double kStragglerFactor = 2.0;
/// And so many seconds.
inline constexpr double kStragglerSeconds = 1.0;
/// An item that ended as many workers has failed: it needs more memory than there is, say.
inline constexpr int kMostTries = 5;

/// An item that this worker has; given back when it is destroyed.
class Lease {
 public:
  Lease(std::filesystem::path file, bool is_shared, const std::stop_token& caller);
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  /// Stops when the caller does, or once another worker has answered the item.
  std::stop_token stop() const { return stop_.get_token(); }
  /// True if another worker that lives is at the item, too.
  bool is_shared() const { return is_shared_; }
  /// The item is answered: its other leases go, too.
  void answered() const;

 private:
  void touch(const std::stop_token& end);

  struct StopAsked {
    std::stop_source source;
    void operator()() { source.request_stop(); }
  };
  std::filesystem::path file_;
  bool is_shared_;
  std::stop_source stop_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::stop_callback<StopAsked> caller_stops_;
  std::jthread touching_;
};

class Leases {
 public:
  /// The folder is made with the first lease. `worker`: HOST-PID-NUMBER.
  Leases(std::filesystem::path folder, std::string worker);

  /// The item if nobody has, or had, it. Throws IoError if no lease can be made.
  std::unique_ptr<Lease> take(const std::string& key, const std::stop_token& stop);
  /// Of an item that others had: if they are dead (fewer than `most_dead`), or one lives and has
  /// had it for long. `mean`: seconds of finished items. `n_dead`: how many workers ended at it.
  std::unique_ptr<Lease> take_over(const std::string& key, double mean, const std::stop_token& stop,
                                   int most_dead, int& n_dead);
  /// Removes what is left of dead workers of this machine.
  void clear_dead();
  /// True if a process of this machine that lives is at an item.
  bool is_held_here() const;
  /// Keys of items at which workers that live are.
  std::vector<std::string> at_work();

 private:
  struct Holder {
    std::filesystem::path file;
    int number = 0;
    bool is_dead = false;
    double seconds = 0.0;  // since this worker has seen it
  };
  struct Seen {
    std::filesystem::file_time_type touched;
    Stopwatch since;  // it was seen touched
    Stopwatch begin;  // it was seen first
  };
  std::unique_ptr<Lease> make(const std::string& key, int number, bool is_shared,
                              const std::stop_token& stop) const;
  bool is_dead(const std::filesystem::path& file, Seen& seen) const;
  /// Of the holder's process; none if it is another machine's.
  std::optional<pid_t> pid_here(const std::filesystem::path& file) const;
  /// By keys, by numbers.
  std::map<std::string, std::vector<Holder>> holders();

  std::filesystem::path folder_;
  std::string worker_;
  std::map<std::string, Seen> seen_;  // by the files' names
};

}  // namespace kvscope
