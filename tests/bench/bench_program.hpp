// A measurement that the command line does not need, as a program of its own: the options and the
// report in JSON are those of kvscope bench.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "analysis/cli/frame/help.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/runs/bench_report.hpp"

namespace kvscope::cli {

class BenchProgram : public BenchReportCommand {
 protected:
  std::string describe(const nlohmann::ordered_json& report) const final {
    return report.dump(2) + "\n";
  }
};

/// What main returns.
inline int run_bench_program(Command& command, int argc, char** argv) try {
  const std::vector<std::string> words(argv + 1, argv + argc);
  OptionSet options;
  command.declare(options);
  options.parse(words);
  if (!options.wants_help())
    return command.run(options, fmt::format("{} {}", command.name(), fmt::join(words, " ")));
  print(command_text(command, options));
  return 0;
} catch (const std::exception& error) {
  note("{}: {}", command.name(), error.what());
  return 1;
}

}  // namespace kvscope::cli
