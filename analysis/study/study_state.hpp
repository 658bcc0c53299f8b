// What of a study is known, has failed, or is left to do, as its store says.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/runs/work.hpp"
#include "analysis/study/study_items.hpp"

namespace kvscope {

/// The sentence of an item that failed, or whose recording did; empty of others.
std::string failure_of(const StudyPlan& plan, const Store& store, const StudyItem& item);

/// [items]: what a run would do: what is not known, without what failed (unless `retry_failed`); of
/// recordings those that it needs and that are not there.
std::vector<bool> study_to_do(const StudyPlan& plan, const Store& store, bool retry_failed);

/// How far a job is: done if its items are answered, or a recording that it needs failed.
ItemState state_of_job(const StudyPlan& plan, const Store& store, const StudyJob& job);
/// Its items that are not answered.
std::vector<const StudyItem*> open_items(const StudyPlan& plan, const Store& store,
                                         const StudyJob& job);

/// What a study will take, from what its store knows: seconds of an item are those of its kind
/// times a factor of its method, both as measured.
class StudyForecast {
 public:
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

/// Jobs that have to be done before the seconds of all jobs `to_do` can be told: two of each kind
/// of which less is measured, with methods by turns, one of each method of which nothing is
/// measured, and what they need.
std::vector<bool> study_probes(const StudyPlan& plan, const Store& store,
                               const std::vector<bool>& to_do);

/// How far a study is, and what the rest of it takes: {"items", "known", "failed", "to_do", "jobs"
/// (for what is to do, as the rest), "seconds" of processor, "memory" of a worker at most, "bytes"
/// of recordings (NaN: unknown), "tasks": [the same for each "task"]}; recordings that nothing left
/// to do needs are not to do. `planned`: as StudyForecast takes it.
nlohmann::ordered_json count_study(const StudyPlan& plan, const Store& store,
                                   std::map<std::string, double> planned = {});

}  // namespace kvscope
