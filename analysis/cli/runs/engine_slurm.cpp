// The engine "slurm": a batch script of an array job, one task per worker, and sbatch --wait until
// it has ended. A task that is preempted or ends at its time limit gets SIGTERM, stops between two
// looks at the stop token, and is queued again; what it had finished is in the store. Partition,
// account, memory and time come from sbatch's own environment (SBATCH_PARTITION, SBATCH_ACCOUNT,
// SBATCH_MEM_PER_NODE, SBATCH_TIMELIMIT, ...).
#include <fmt/format.h>

#include <filesystem>

#include "analysis/cli/runs/engine.hpp"
#include "core/base/new_file.hpp"
#include "core/base/shell_word.hpp"

namespace kvscope::cli {

namespace {

/// Of files that Slurm reads and writes.
constexpr std::string_view kSlurmStem = "slurm";

/// A path as an option of sbatch: % begins its own patterns.
std::string output_of(const std::filesystem::path& folder) {
  std::string text;
  for (const char c : folder.string()) text += c == '%' ? "%%" : std::string(1, c);
  return fmt::format("\"{}/{}-%a.out\"", text, kSlurmStem);
}

std::string script_of(const EngineJob& job) {
  const std::string command = command_line_of(job.words, "");
  // exec: the signal reaches the program. 30 seconds before a time limit, since a stop takes
  // moments.
  return fmt::format(
      "#!/bin/sh\n"
      "#SBATCH --job-name=kvscope\n"
      "#SBATCH --array=0-{}\n"
      "#SBATCH --cpus-per-task={}\n"
      "#SBATCH --requeue\n"
      "#SBATCH --open-mode=append\n"
      "#SBATCH --signal=B:TERM@30\n"
      "#SBATCH --output={}\n"
      "exec{}\n",
      job.workers - 1, job.threads, output_of(job.folder), command);
}

}  // namespace

std::string run_slurm(const EngineJob& job) {
  const std::filesystem::path script = job.folder / fmt::format("{}.sh", kSlurmStem);
  write_new_file(script, script_of(job), /*overwrite=*/true);
  LauncherEnd outcome;
  try {
    outcome = run_launcher({"sbatch", "--wait", "--parsable", script.string()}, job.stop);
  } catch (...) {
    remove_quietly(script);
    throw;
  }
  remove_quietly(script);  // sbatch has read it
  const std::string number = outcome.out.substr(0, outcome.out.find_first_of(";\n"));
  // Its tasks stop cleanly.
  if (job.stop.stop_requested() && !number.empty()) run_launcher({"scancel", number}, {});
  if (outcome.ended == 0) {
    for (int task = 0; task < job.workers; ++task)
      remove_quietly(job.folder / fmt::format("{}-{}.out", kSlurmStem, task));
    return "";
  }
  return fmt::format("{}{}", launcher_text("sbatch", outcome.ended, outcome.err),
                     number.empty() ? ""
                                    : fmt::format(" (job {}; its words are in {}/{}-*.out)", number,
                                                  job.folder.string(), kSlurmStem));
}

}  // namespace kvscope::cli
