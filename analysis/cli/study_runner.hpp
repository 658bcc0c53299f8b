// Runs jobs of a study as units (analysis/units) under an engine, and keeps what they make.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "analysis/cli/common_options.hpp"
#include "analysis/cli/study_setup.hpp"
#include "analysis/cli/unit_options.hpp"
#include "analysis/study/study_work.hpp"
#include "analysis/units/unit_folder.hpp"

namespace kvscope::cli {

/// Where units are kept, and who does them: `engine` are words of UnitOptions. Throws UsageError.
UnitOptions engine_options(const std::filesystem::path& folder,
                           const std::vector<std::string>& engine);

/// The jobs of a plan file as units, each a command with so many threads.
UnitWork study_work(const std::filesystem::path& file, int n_threads);

/// Which items to do now, without those whose keys were tried.
using StudyChoice = std::function<std::vector<bool>(const std::set<std::string>& tried)>;

/// Does the chosen items, recordings first, until none is left that can be done; what failed is in
/// the store. `engine`: see engine_options(). Throws Interrupted on a stop and IoError if workers
/// cannot go on; what is finished stays. Only under the store's lock.
void run_study(LoadedStudy& study, const StudyChoice& choice,
               const std::vector<std::string>& engine, const WorkOptions& work);

}  // namespace kvscope::cli
