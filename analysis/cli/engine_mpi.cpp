// The engine "mpi": mpirun of Open MPI as launcher. Nothing is linked against MPI: a rank finds its
// number in the environment, works on its share of the list, and the folder of units is all that
// ranks share.
#include <unistd.h>

#include <cstdlib>

#include "analysis/cli/child_process.hpp"
#include "analysis/cli/engine.hpp"

namespace kvscope::cli {

std::string run_mpi(const EngineJob& job) {
  // More ranks than cores are the user's choice; a rank has threads of its own and is not bound to
  // a core.
  std::vector<std::string> words = {"mpirun",          "-n",        std::to_string(job.workers),
                                    "--oversubscribe", "--bind-to", "none"};
  if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
  for (const std::string& word : worker_words(job, "@" + job.list.string())) words.push_back(word);
  // Within a task of an array job, ranks would take that task's share instead of their own.
  ::unsetenv("SLURM_ARRAY_TASK_ID");
  const ChildOutcome outcome = run_child(words, job.stop);
  return launcher_text("mpirun", outcome.ended, outcome.err);
}

}  // namespace kvscope::cli
