// How far a study is: what kvscope study status --json says.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gui/model/jobs/jobs.hpp"

namespace kvscope::gui {

/// Items of a task, or of all.
struct StudyTaskStatus {
  std::string task;  // "all"
  std::size_t items = 0;
  std::size_t known = 0;
  std::size_t failed = 0;
  std::size_t to_do = 0;
  std::size_t jobs = 0;           // for what is to do
  std::optional<double> seconds;  // of processor for the rest; empty: unknown
};

struct StudyFailure {
  std::string item;  // "sweep: quest tokens=16 on draft, book"
  std::string sentence;
};

struct StudyStatus {
  std::string study;
  std::string store;
  StudyTaskStatus all;
  std::vector<StudyTaskStatus> tasks;
  std::vector<std::string> running;      // what workers are at
  std::optional<double> items_per_hour;  // empty: unknown
  std::optional<double> seconds_left;
  std::vector<StudyFailure> failures;  // the first of many
  std::size_t bytes() const;
};

/// Reads what kvscope study status --json prints. Throws FormatError.
StudyStatus read_study_status(const std::string& json);

/// Asks the program. Throws ConfigError with its sentence, FormatError for an answer of another
/// version, Interrupted on a stop.
StudyStatus ask_study_status(const std::string& program, const std::filesystem::path& study,
                             JobContext& job);

}  // namespace kvscope::gui
