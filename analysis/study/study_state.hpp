// What of a study is known, has failed, or is left to do, as its store says.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "analysis/runs/work.hpp"
#include "analysis/study/study_forecast.hpp"
#include "analysis/study/study_items.hpp"

namespace kvscope {

/// The sentence of an item that failed, or whose recording did; empty of others.
std::string failure_of(const StudyPlan& plan, const Store& store, const StudyItem& item);

/// True if a recording is known and its file is there, as long as it was.
bool has_recording(const Store& store, const StudyItem& item);

/// [items]: what a run would do: what is not known, without what failed (unless `retry_failed`); of
/// recordings those that it needs and that are not there.
std::vector<bool> study_to_do(const StudyPlan& plan, const Store& store, bool retry_failed);

/// How far a job is: done if its items are answered, or a recording that it needs failed.
ItemState state_of_job(const StudyPlan& plan, const Store& store, const StudyJob& job);
/// Its items that are not answered.
std::vector<const StudyItem*> open_items(const StudyPlan& plan, const Store& store,
                                         const StudyJob& job);

/// Two jobs of each kind of which less is measured, with methods by turns, and one of each method
/// of which nothing is measured, among items `of`.
std::vector<bool> probe_items(const StudyPlan& plan, const StudyForecast& forecast,
                              const std::vector<bool>& of);

/// Jobs that have to be done before the seconds of all jobs `to_do` can be told:
/// probe_items() and what they need.
std::vector<bool> study_probes(const StudyPlan& plan, const Store& store,
                               const std::vector<bool>& to_do);

/// How far a task is, and what the rest of it takes.
struct StudyCounts {
  std::string task;
  std::size_t items = 0;
  std::size_t known = 0;
  std::size_t failed = 0;
  std::size_t to_do = 0;
  std::size_t jobs = 0;  // for what is to do, as the rest:
  double seconds = 0.0;  // of processor; NaN: unknown, as the rest
  double memory = 0.0;   // bytes of a worker at most
  double bytes = 0.0;    // of recordings
};

/// By tasks, then "all"; recordings that nothing left to do needs are not to do.
/// `planned`: as StudyForecast takes it.
std::vector<StudyCounts> count_study(const StudyPlan& plan, const Store& store,
                                     std::map<std::string, double> planned = {});

}  // namespace kvscope
