// Engines: who runs the units of a command (analysis/units/unit_folder.hpp). Each starts workers,
// which are this program with --unit, and returns when they have ended; what is finished then lies
// in the folder, whatever became of them. The caller looks at what is missing.
#pragma once

#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/progress.hpp"

namespace kvscope::cli {

struct EngineJob {
  std::vector<std::string> command;  // program and words of a worker, but for --unit and --out
  std::vector<std::string> todo;     // ids, none of which the folder holds
  std::filesystem::path folder;      // exists
  std::filesystem::path list;        // a file of the ids in `todo`, one per line
  int workers = 1;
  int threads = 1;  // of a worker, named in `command` already
  /// Writes of a unit that it failed, and why.
  std::function<void(const std::string& id, const std::string& sentence)> give_up;
  ProgressFn progress;
  std::stop_token stop;
};

/// What became of the workers; empty if all ended well. Throws IoError if none can be started.
using Engine = std::string (*)(const EngineJob&);

/// Processes on this machine; each gets the next unit when it has done one. A worker that a signal
/// ended or asked to stop is replaced, and its unit given to another.
std::string run_local(const EngineJob& job);
/// mpirun of Open MPI, one rank per worker; rank r takes every workers-th unit of the list.
std::string run_mpi(const EngineJob& job);
/// sbatch --wait of an array job with a task per worker, which preemption may stop and queue again.
std::string run_slurm(const EngineJob& job);
/// Tasks of Ray, through kvscope.ray_units of the Python package.
std::string run_ray(const EngineJob& job);

/// Throws UsageError naming the engines.
Engine find_engine(std::string_view name);

/// job.command with --unit `units` and --out folder.
std::vector<std::string> worker_words(const EngineJob& job, const std::string& units);

/// A sentence of a launcher that ended badly; empty if it did not.
std::string launcher_text(std::string_view launcher, int ended, const std::string& written);

}  // namespace kvscope::cli
