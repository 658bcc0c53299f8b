// One job of a study in this process: a command line, its result as lines for the store.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <stop_token>

#include "analysis/study/study_work.hpp"
#include "core/base/progress.hpp"

namespace kvscope::cli {

/// A line of the store for each item of the job. Where the command refuses several budgets
/// together, each is tried alone; an item that cannot be done has a line that says why. What a
/// killed worker had done of it is in `scratch`, from where it goes on; of two workers at one job
/// the second waits. Throws Interrupted on a stop.
nlohmann::ordered_json do_study_job(const StudyWorkJob& work, const std::filesystem::path& scratch,
                                    int n_threads, const ProgressFn& progress,
                                    std::stop_token stop);

}  // namespace kvscope::cli
