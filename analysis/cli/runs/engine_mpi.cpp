// The engine "mpi": mpirun of Open MPI as launcher. Nothing is linked against MPI: the store is all
// that ranks share.
#include <unistd.h>

#include "analysis/cli/runs/engine.hpp"

namespace kvscope::cli {

std::string run_mpi(const EngineJob& job) {
  // More ranks than cores are the user's choice; a rank has threads of its own and is not bound to
  // a core.
  std::vector<std::string> words = {"mpirun",          "-n",        std::to_string(job.workers),
                                    "--oversubscribe", "--bind-to", "none"};
  if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
  words.insert(words.end(), job.words.begin(), job.words.end());
  const LauncherEnd outcome = run_launcher(words, job.stop);
  return launcher_text("mpirun", outcome.ended, outcome.err);
}

}  // namespace kvscope::cli
