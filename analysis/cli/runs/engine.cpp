#include "analysis/cli/runs/engine.hpp"

#include <fmt/format.h>

#include "analysis/cli/frame/child_process.hpp"
#include "analysis/options/exit_code.hpp"
#include "analysis/options/options.hpp"
#include "core/base/run_program.hpp"
#include "core/base/start_program.hpp"

namespace kvscope::cli {

namespace {

constexpr std::array<std::pair<std::string_view, Engine>, 4> kEngines = {
    {{"local", run_local}, {"mpi", run_mpi}, {"slurm", run_slurm}, {"ray", run_ray}}};

}  // namespace

Engine find_engine(std::string_view name) {
  for (const auto& [known, engine] : kEngines) {
    if (known == name) return engine;
  }
  throw UsageError("--engine: expected local, mpi, slurm or ray, found \"{}\"", name);
}

LauncherEnd run_launcher(const std::vector<std::string>& words, const std::stop_token& stop) {
  LauncherEnd end;
  const ProgramEnd program = run_program(
      words, [&](const std::string& line) { end.err += line + "\n"; }, stop, SIGTERM);
  end.ended = program.ended;
  end.out = program.out;
  return end;
}

std::string launcher_text(std::string_view launcher, int ended, const std::string& written) {
  if (ended == 0) return "";
  const std::string said = sentence_of(written);
  return fmt::format("{} {}{}{}", launcher, end_text(ended), said.empty() ? "" : ": ", said);
}

}  // namespace kvscope::cli
