// kvscope as another program, run from a job of the window: its progress and its sentences.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/progress.hpp"
#include "core/base/run_program.hpp"
#include "gui/model/jobs/jobs.hpp"

namespace kvscope::gui {

/// A line of --progress json; empty for anything else.
std::optional<Progress> progress_of(const std::string& line);

/// What kvscope said as a sentence for the window: without its own name, and without the way to its
/// help, which leads to a terminal.
std::string sentence_of(std::string line);

/// What it printed; lines of --progress json are the job's progress. Throws ConfigError with what
/// it says where it fails, Interrupted on a stop.
std::string answer_of_program(const std::vector<std::string>& words, JobContext& job);

}  // namespace kvscope::gui
