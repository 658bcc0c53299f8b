// One line of kvscope cost --check for each measured call, and where they come from: calls measured
// now, a report of kvscope bench select, prefills of a running model.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <stop_token>
#include <string>
#include <vector>

#include "analysis/cli/bench_select_run.hpp"
#include "analysis/cost/hardware.hpp"
#include "core/base/parallel.hpp"
#include "core/base/progress.hpp"

namespace kvscope::cli {

/// Seconds of a call or a prefill, as measured and as predicted. Measured are the least of the
/// rounds, as in the profile: other programs only add.
struct CheckRow {
  std::string selector;
  std::string phase;  // prefill, decode, or live prefill
  int n_threads = 1;
  double tokens = 0.0;
  double measured_choose = 0.0;
  double measured_attend = 0.0;
  double predicted_choose = 0.0;
  double predicted_attend = 0.0;
  double with_rate = 0.0;  // one factor per method and phase, of its shortest call
  bool gave_rate = false;
  double measured() const { return measured_choose + measured_attend; }
  double predicted() const { return predicted_choose + predicted_attend; }
};

/// Calls over made-up keys.
std::vector<CheckRow> rows_of_bench(const std::vector<SelectBenchCase>& cases,
                                    const SelectBenchPlan& plan, const HardwareProfile& hardware,
                                    int n_threads);

/// The same from a file of bench select --json. Throws FormatError, one sentence.
std::vector<CheckRow> rows_of_report(const nlohmann::json& report, const std::string& where,
                                     const HardwareProfile& hardware);
/// The threads that the report was measured with. Throws FormatError if it is another report.
int threads_of_report(const nlohmann::json& report, const std::string& where);

/// Prefills of the embedded model over `n_tokens`. What the methods keep is counted in a replay of
/// the model's dense pass over the same text, in the same calls.
std::vector<CheckRow> rows_of_live(const std::vector<std::pair<MethodSpec, Budget>>& methods,
                                   Index n_tokens, Index n_repeats, const HardwareProfile& hardware,
                                   ThreadPool& pool, const ProgressFn& progress,
                                   const std::stop_token& stop);

}  // namespace kvscope::cli
