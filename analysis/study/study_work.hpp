// Jobs on their way to workers and back: a plan file that every worker reads instead of the study,
// and folders of units whose lines go into the store.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "analysis/study/study_forecast.hpp"
#include "analysis/study/study_items.hpp"
#include "analysis/study/study_store.hpp"

namespace kvscope {

/// A job as a worker sees it.
struct StudyWorkJob {
  StudyJob job;                     // key, kind, method, label and words
  std::vector<StudyItem> items;     // that it answers: key, question, method and budget
  std::filesystem::path recording;  // what it writes; empty of others
  double seconds = 0.0;             // predicted; 0: unknown
};

/// Throws IoError.
void write_study_work(const std::filesystem::path& file, const StudyPlan& plan,
                      const StudyStore& store, std::span<const StudyJob> jobs);
/// Throws IoError or FormatError.
std::vector<StudyWorkJob> read_study_work(const std::filesystem::path& file);

/// A line of the store for an item that failed.
nlohmann::ordered_json failed_line(const StudyWorkJob& work, const StudyItem& item,
                                   const std::string& sentence);

/// In a unit's line: the lines of the store that its job made.
inline constexpr const char* kStudyLines = "study";
inline constexpr const char* kStudyWorkFile = "work.journal";

/// Takes what workers finished in the store's work folder into the store, and removes it. Only
/// under the store's lock. Returns how many items that were. A damaged unit is done again.
std::size_t absorb_work(StudyStore& store);

/// What a run is at, for who only looks: the store gets to know in memory what workers finished.
struct StudyRunning {
  std::vector<std::string> labels;  // of jobs at which a worker is now
  double jobs_per_hour = 0.0;       // 0: unknown
};
StudyRunning look_at_work(StudyStore& store);

}  // namespace kvscope
