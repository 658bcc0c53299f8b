// Engines: who starts the workers of a command. A worker is this program with the same words and
// --worker: it takes items of the store until none is left (analysis/runs/work.hpp). An engine
// returns when its workers have ended; what became of the items, the caller asks the store.
#pragma once

#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace kvscope::cli {

struct EngineJob {
  std::vector<std::string> words;  // program and words of a worker
  std::filesystem::path folder;    // for files of the engine's own; exists
  int workers = 1;
  int threads = 1;                      // of a worker, named in `words` already
  std::function<std::size_t()> n_left;  // items that are not done; shows progress
  std::stop_token stop;
};

/// What became of the workers; empty if all ended well. Throws IoError if none can be started.
using Engine = std::string (*)(const EngineJob&);

/// Processes on this machine. One that a signal ended or asked to stop is replaced.
std::string run_local(const EngineJob& job);
/// mpirun of Open MPI, one rank per worker.
std::string run_mpi(const EngineJob& job);
/// sbatch --wait of an array job with a task per worker, which preemption may stop and queue again.
std::string run_slurm(const EngineJob& job);
/// Tasks of Ray, through kvscope.ray_workers of the Python package.
std::string run_ray(const EngineJob& job);

/// Throws UsageError naming the engines.
Engine find_engine(std::string_view name);

struct LauncherEnd {
  int ended = 0;  // as wait_for_program
  std::string out;
  std::string err;
};
/// A launcher to its end; a stop asks it to end its tasks.
LauncherEnd run_launcher(const std::vector<std::string>& words, const std::stop_token& stop);

/// A sentence of a launcher that ended badly; empty if it did not.
std::string launcher_text(std::string_view launcher, int ended, const std::string& written);

}  // namespace kvscope::cli
