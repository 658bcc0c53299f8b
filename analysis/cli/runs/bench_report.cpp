#include "analysis/cli/runs/bench_report.hpp"

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>

#include "analysis/base/number_formats.hpp"
#include "analysis/cli/frame/output.hpp"
#include "core/base/cpu.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/other_load.hpp"
#include "core/base/version.hpp"

namespace kvscope::cli {

void take_turns(const BenchTurns& turns, std::size_t n_cases, const Running& means,
                const std::function<void(std::size_t, bool)>& once) {
  std::vector<std::size_t> order(n_cases);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937_64 random(static_cast<std::uint64_t>(turns.seed));
  const Index n_rounds = turns.n_rounds + (turns.has_warm_up ? 1 : 0);
  const std::int64_t n_turns = n_rounds * static_cast<std::int64_t>(n_cases);
  std::int64_t n_done = 0;
  for (Index round = 0; round < n_rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t one : order) {
      if (means.stop.stop_requested())
        throw Interrupted("the measurement of {} was stopped", turns.stage);
      once(one, round > 0 || !turns.has_warm_up);
      if (means.progress) means.progress({turns.stage, ++n_done, n_turns, "turns"});
    }
  }
}

void add_spread(Json& row, const std::string& name, std::span<const double> of) {
  row[name] = json_number(median(of));
  row[name + "_low"] = of.empty() ? Json(nullptr) : Json(*std::ranges::min_element(of));
  row[name + "_high"] = of.empty() ? Json(nullptr) : Json(*std::ranges::max_element(of));
}

void BenchReportCommand::declare(OptionSet& options) {
  declare_bench(options);
  work_.declare(options);
  declare_json(options, json_);
}

int BenchReportCommand::run(const OptionSet&, const std::string& command_line) {
  check_usage();
  Working run(work_);
  const OtherLoad others;
  Json report = measure(run);
  report["cpu"] = cpu_name();
  report["machine_cores"] = std::thread::hardware_concurrency();
  report["other_cores"] = json_number(others.cores());
  report["version"] = writer_name();
  report["command_line"] = command_line;
  json_ ? print_json(report) : print(describe(report));
  return kOk;
}

}  // namespace kvscope::cli
