// How much of a recording that did not end is whole, as its checksums say.
#pragma once

#include <filesystem>
#include <stop_token>
#include <string>

#include "core/base/index.hpp"
#include "core/base/progress.hpp"

namespace kvscope {

struct WholeCalls {
  Index n_planned_calls = 0;
  Index n_planned_tokens = 0;
  Index n_committed = 0;
  Index n_good = 0;
  std::string first_problem;
};

/// Compares every committed call with its checksums, up to the first that differs. Throws IoError
/// for a file that a live process records into, FormatError for one without checksums, Interrupted
/// on a stop.
WholeCalls count_whole_calls(const std::filesystem::path& part, const ProgressFn& progress,
                             const std::stop_token& stop);

}  // namespace kvscope
