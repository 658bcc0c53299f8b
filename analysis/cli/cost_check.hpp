// kvscope cost --check: what the cost model predicts for this machine beside what is measured on
// it, by the very functions behind kvscope bench select and kvscope bench live.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <stop_token>
#include <string>
#include <vector>

#include "analysis/cli/stopwatch.hpp"
#include "core/base/progress.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope::cli {

struct CheckOptions {
  /// At most one profile; empty = measured now, for each number of threads.
  std::vector<std::string> hardware;
  /// Files of kvscope bench select --json; empty = measured now.
  std::vector<std::filesystem::path> reports;
  std::vector<MethodSpec> methods;  // empty = one of each family that is cheap to run
  std::vector<Index> lengths = {4096, 8192};
  std::vector<int> threads;  // empty = one and all; the profile's own, if one is given
  Index n_repeats = 3;
  Index live_tokens = 2048;  // of the embedded model's prompt; 0 = without bench live
  BenchClock clock = BenchClock::wall;
};

/// Throws UsageError for several profiles or the processors' clock on several threads, FormatError
/// for a report of another kind.
nlohmann::ordered_json cost_check(const CheckOptions& options, const ProgressFn& progress,
                                  const std::stop_token& stop);

/// The names that `methods` stands for when it is empty.
std::vector<std::string> default_check_methods();

std::string describe_check(const nlohmann::ordered_json& report);

}  // namespace kvscope::cli
