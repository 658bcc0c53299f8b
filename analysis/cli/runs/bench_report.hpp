// The frame of commands that measure something: cases that take turns, and the report as JSON with
// what ran it, or in words.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>

#include "analysis/base/statistics.hpp"
#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "core/base/stopwatch.hpp"

namespace kvscope::cli {

/// Seconds that `work()` takes.
template <class Work>
double seconds_of(Work&& work) {
  const Stopwatch watch;
  work();
  return watch.seconds();
}

/// The middle of the values; NaN if there are none.
inline double median(std::span<const double> values) {
  return quantile(values, 0.5);
}

/// How often cases are measured, in another order each round: what one leaves in the caches meets
/// another one.
struct BenchTurns {
  std::string stage;        // for progress
  Index n_rounds = 1;       // that count
  bool has_warm_up = true;  // a round before them, which does not
  Index seed = 0;           // of the orders
};

/// Has every case measured once a round: once(case, counted). Throws Interrupted on a stop.
void take_turns(const BenchTurns& turns, std::size_t n_cases, const Running& means,
                const std::function<void(std::size_t, bool)>& once);

/// Adds the median of the values as NAME, the extremes as NAME_low and NAME_high; null for none.
void add_spread(nlohmann::ordered_json& row, const std::string& name, std::span<const double> of);

class BenchReportCommand : public Command {
 public:
  void declare(OptionSet& options) final;
  int run(const OptionSet&, const std::string& command_line) final;

 protected:
  /// Everything but --threads, --progress and --json.
  virtual void declare_bench(OptionSet& options) = 0;
  /// Throws UsageError.
  virtual void check_usage() const {}
  /// Throws UsageError too, for what shows only here, and Interrupted on a stop.
  virtual nlohmann::ordered_json measure(Working& means) const = 0;
  virtual std::string describe(const nlohmann::ordered_json& report) const = 0;

  WorkOptions work_;

 private:
  bool json_ = false;
};

}  // namespace kvscope::cli
