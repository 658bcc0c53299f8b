// Runs items of a study: jobs are command lines, whose rows become lines of the store.
#pragma once

#include <string>
#include <vector>

#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/runs/run_job.hpp"
#include "analysis/cli/runs/study_setup.hpp"

namespace kvscope::cli {

/// Does these [items], recordings first; what failed is in the store then. Workers are started as
/// `words`. Throws Interrupted on a stop and IoError if workers cannot go on; what is finished
/// stays.
void run_study(LoadedStudy& study, const std::vector<bool>& to_do, const WorkerOptions& workers,
               const std::vector<std::string>& words, const WorkOptions& options);

}  // namespace kvscope::cli
