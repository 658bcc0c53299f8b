// How workers that only share a folder give out units among themselves.
//
// A worker takes a unit by making the empty file LEASES/ID, which the file system lets one of them
// do (O_EXCL, also on NFS 3 and later). So a worker that is faster or comes later takes more, and
// nobody has to know who is there. A worker that finds nothing free takes a unit that another has
// had for long (a slow machine, or a worker that died): LEASES/ID.again. The first of the two that
// writes the unit wins, the other one stops; both would write the same bytes. No clock decides who
// may do what: one that jumps makes a unit be done twice, or later.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

namespace kvscope {

/// A unit is given out twice once it takes so many times the mean of those that were finished.
inline constexpr double kStragglerFactor = 2.0;
/// And so many seconds.
inline constexpr double kStragglerSeconds = 1.0;

/// True if a unit that was begun so long ago is to be given out a second time.
bool is_straggler(double seconds, double mean_of_finished);

class UnitLeases {
 public:
  /// Of a worker that does all of them, in this order.
  explicit UnitLeases(std::vector<std::string> ids);
  /// Of one of `size` workers, which begins with every size-th id from `rank` on, so that few reach
  /// for the same. `leases`: an empty folder of one run, made before workers start; `units`: where
  /// finished units lie.
  UnitLeases(std::vector<std::string> ids, std::size_t rank, std::size_t size,
             std::filesystem::path leases, std::filesystem::path units);

  const std::vector<std::string>& ids() const { return ids_; }
  /// The unit that this worker has to do now; none once all are finished or have two workers. While
  /// the others' units are not yet stragglers it waits. Throws Interrupted on a stop, IoError if no
  /// lease can be made.
  std::optional<std::string> next(const std::stop_token& stop);
  /// After next()'s unit was done, or failed.
  void finished(const std::string& id, double seconds);

 private:
  bool is_done(const std::string& id) const;
  /// Makes LEASES/ID, or LEASES/ID.again; false if another has, or the unit is done.
  bool take(const std::string& id, const char* again = "") const;
  std::optional<std::string> next_free();
  /// The longest-running unit that has one worker; `is_any`: there is one, straggler or not.
  std::optional<std::string> next_straggler(bool& is_any);

  std::vector<std::string> ids_;
  std::filesystem::path leases_;  // empty: nobody else is at them
  std::filesystem::path units_;
  std::vector<std::size_t> order_;  // of ids_, this worker's share first
  std::size_t at_ = 0;              // in order_
  std::set<std::string> own_;       // ids that this worker took
  double seconds_ = 0.0;            // of its finished units
  std::size_t n_finished_ = 0;
};

}  // namespace kvscope
