// Tables and figures of a study's tasks, made by the program's own commands from the rows that its
// store holds.
#pragma once

#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include "analysis/cli/runs/study_setup.hpp"
#include "analysis/papers/page.hpp"
#include "analysis/study/study_table.hpp"

namespace kvscope::cli {

struct StudyDrawing {
  std::filesystem::path out;  // a folder
  std::string against;        // the method that differences are to; empty: the first
  bool overwrite = false;
};

/// Draws a task's metrics against the budget, a panel for each model and text (more than 24: for
/// each model, over its texts), into out/TASK-METRIC with a table beside each, and the rows behind
/// them as out/TASK.csv and out/TASK-means.csv; of an analysis tables of what was picked. A picture
/// that cannot be drawn says why. Paths in pictures are relative to out. Throws IoError for files
/// that are there already, and Interrupted.
std::vector<papers::DrawnPicture> draw_task(const LoadedStudy& study, const StudyAnswers& answers,
                                            const std::string& task, const StudyDrawing& drawing,
                                            const std::stop_token& stop);

/// Throws UsageError for a method that the study does not have.
void require_method(const LoadedStudy& study, const std::string& method);

}  // namespace kvscope::cli
