// One job of a study in this process: a command line, its result as lines for the store.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <stop_token>
#include <string>
#include <vector>

#include "analysis/study/study_items.hpp"
#include "core/base/progress.hpp"

namespace kvscope::cli {

struct StudyJobRun {
  const StudyJob& job;
  std::vector<const StudyItem*> items;  // that are asked for
  std::filesystem::path recording;      // what it writes; empty of others
  /// Where it keeps what it is at, which a killed worker's successor goes on with; of this worker
  /// alone while it runs.
  std::filesystem::path scratch;
  int n_threads = 1;
};

/// A line of the store for each item. Where the command refuses several budgets together, each is
/// tried alone; an item that cannot be done has a line that says why. Throws Interrupted on a stop.
std::vector<nlohmann::ordered_json> do_study_job(const StudyJobRun& run, const ProgressFn& progress,
                                                 std::stop_token stop);

/// The store's line for an item that failed.
nlohmann::ordered_json failed_line(const StudyJob& job, const StudyItem& item,
                                   const std::string& sentence);

}  // namespace kvscope::cli
