// What the commands of kvscope study share: the file, checked against the commands that it names,
// its items, and its store.
#pragma once

#include <filesystem>
#include <string>

#include "analysis/runs/store.hpp"
#include "analysis/study/study_items.hpp"
#include "analysis/study/study_state.hpp"

namespace kvscope::cli {

struct LoadedStudy {
  StudyFile file;
  StudyInputs inputs;
  StudyPlan plan;
  Store store;
};

/// Throws what read_study_file does, and ConfigError with the line for unknown options of a
/// command, models and recordings that do not open, and options that a study sets itself.
LoadedStudy load_study(const std::filesystem::path& file);

/// Throws UsageError for a word of --task that names none.
void require_task(const LoadedStudy& study, const std::string& task);

/// Notes what was left out, the first of many.
void note_left_out(const StudyPlan& plan);

}  // namespace kvscope::cli
