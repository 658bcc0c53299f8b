// What a study will take, from what its store knows: seconds of an item are those of its kind times
// a factor of its method, both as measured.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/runs/store.hpp"
#include "analysis/study/study_items.hpp"

namespace kvscope {

class StudyForecast {
 public:
  /// Of nothing that was measured.
  StudyForecast() = default;
  /// Of these measured items.
  explicit StudyForecast(std::span<const StoredAnswer* const> measured,
                         std::map<std::string, double> planned = {});
  /// Of all items that the store knows, whatever code made them. `planned`: bytes of a recording,
  /// by the kind of its job, where nobody has measured that.
  explicit StudyForecast(const Store& store, std::map<std::string, double> planned = {});

  /// NaN where no item of the job's kind is known.
  double seconds(const StudyJob& job) const;  // of processor, for all its items
  double memory(const StudyJob& job) const;   // bytes of a worker
  double bytes(const StudyJob& job) const;    // of the recording that it makes; 0 of other jobs
  /// True if the method's factor was measured, in whatever kind.
  bool knows_method(const std::string& method) const { return factors_.contains(method); }
  /// How many jobs' methods of this kind were measured (of recordings: how many recordings).
  std::size_t n_measured(const StudyJob& job) const;

 private:
  struct Kind {
    double level =
        0.0;  // log seconds of an item, means of which are of seconds: sums are predicted
    double memory = 0.0;
    double bytes = 0.0;
    std::size_t n_items = 0;
    std::map<std::string, double> methods;  // log of the mean seconds
  };
  std::map<std::string, Kind, std::less<>> kinds_;
  std::map<std::string, double> planned_;               // bytes
  std::map<std::string, double, std::less<>> factors_;  // of methods, as logarithms
};

/// Seconds on the wall for jobs on so many workers with a core each, recordings first; NaN if any
/// job's are unknown.
double wall_seconds(std::span<const StudyJob> jobs, const StudyForecast& forecast,
                    std::size_t n_workers);

}  // namespace kvscope
