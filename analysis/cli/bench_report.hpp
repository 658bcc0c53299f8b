// The frame of commands that measure something and report it: the report as JSON with what ran it,
// or in words.
#pragma once

#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <thread>

#include "analysis/base/statistics.hpp"
#include "analysis/cli/command.hpp"
#include "analysis/cli/common_options.hpp"
#include "analysis/cli/output.hpp"
#include "analysis/cli/signals.hpp"
#include "core/base/cpu.hpp"
#include "core/base/other_load.hpp"
#include "core/base/version.hpp"

namespace kvscope::cli {

class BenchReportCommand : public Command {
 public:
  void declare(OptionSet& options) final {
    declare_bench(options);
    work_.declare(options);
    declare_json(options, json_);
  }

  int run(const OptionSet&, const std::string& command_line) final {
    check_usage();
    const StopOnSignal stop;
    ThreadPool pool(work_.n_threads());
    ProgressReporter progress(work_.progress);
    const OtherLoad others;
    nlohmann::ordered_json report = measure({pool, progress.callback(), stop.token()});
    report["cpu"] = cpu_name();
    report["machine_cores"] = std::thread::hardware_concurrency();
    report["other_cores"] = json_number(others.cores());
    report["version"] = writer_name();
    report["command_line"] = command_line;
    json_ ? print_json(report) : print(describe(report));
    return kOk;
  }

 protected:
  struct Means {
    ThreadPool& pool;
    ProgressFn progress;
    std::stop_token stop;
  };
  /// Everything but --threads, --progress and --json.
  virtual void declare_bench(OptionSet& options) = 0;
  /// Throws UsageError.
  virtual void check_usage() const {}
  /// Throws UsageError too, for what shows only here, and Interrupted on a stop.
  virtual nlohmann::ordered_json measure(const Means& means) const = 0;
  virtual std::string describe(const nlohmann::ordered_json& report) const = 0;

 private:
  bool json_ = false;
  WorkOptions work_;
};

}  // namespace kvscope::cli
