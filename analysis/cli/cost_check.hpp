// kvscope cost --check: what the cost model predicts for this machine beside what kvscope bench
// select measured on it.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <vector>

#include "core/base/progress.hpp"

namespace kvscope::cli {

/// hardware: at most one profile; none = measured now, for the threads of each report. reports: files
/// of kvscope bench select --json; none = made now, with one thread and with all. Throws UsageError
/// for several profiles, FormatError for a report of another kind.
nlohmann::ordered_json cost_check(const std::vector<std::string>& hardware,
                                  const std::vector<std::filesystem::path>& reports,
                                  const ProgressFn& progress, const std::stop_token& stop);

std::string describe_check(const nlohmann::ordered_json& report);

}  // namespace kvscope::cli
