// The engine "ray": the Python package's module kvscope.ray_workers, which starts workers as tasks
// of Ray. The interpreter is KVSCOPE_PYTHON, else python3; a cluster is found as Ray finds it
// (RAY_ADDRESS).
#include <fmt/format.h>

#include <cstdlib>

#include "analysis/cli/runs/engine.hpp"

namespace kvscope::cli {

std::string run_ray(const EngineJob& job) {
  const char* const named = std::getenv("KVSCOPE_PYTHON");
  std::vector<std::string> words = {named != nullptr ? named : "python3", "-m",
                                    "kvscope.ray_workers", std::to_string(job.workers), "--"};
  words.insert(words.end(), job.words.begin(), job.words.end());
  const LauncherEnd outcome = run_launcher(words, job.stop);
  std::string text = launcher_text("ray", outcome.ended, outcome.err);
  if (outcome.err.find("No module named 'kvscope") != std::string::npos)
    text += fmt::format(
        "; this engine needs the Python package (traces/python) and ray in that "
        "interpreter ({}), or another one named by KVSCOPE_PYTHON",
        words.front());
  return text;
}

}  // namespace kvscope::cli
