// Options that several commands share, declared in one place so that they are spelled and explained
// alike.
#pragma once

#include <optional>

#include "analysis/cli/frame/progress_bar.hpp"
#include "analysis/cli/frame/signals.hpp"
#include "analysis/options/options.hpp"
#include "core/base/parallel.hpp"

namespace kvscope::cli {

/// --threads and --progress: for commands that work for a while.
struct WorkOptions {
  std::optional<int> threads;
  ProgressMode progress = ProgressMode::automatic;
  const char* threads_help = "worker threads; never changes a result [all cores]";

  void declare(OptionSet& options) {
    options.add("threads", "N", threads_help, threads, in(1, 1024));
    options.add("progress", "HOW",
                "what to show on standard error; auto is a bar on a terminal, else nothing",
                progress);
  }
  /// The pool's size.
  int n_threads() const { return threads ? *threads : available_cores(); }
};

/// While one of these lives, progress is shown and signals ask to stop.
struct Running {
  explicit Running(ProgressMode mode) : reporter(mode) {}
  const StopOnSignal signals;
  ProgressReporter reporter;
  const std::stop_token stop = signals.token();
  const ProgressFn progress = reporter.callback();
};
/// And threads work.
struct Working : Running {
  explicit Working(const WorkOptions& work) : Running(work.progress), pool(work.n_threads()) {}
  ThreadPool pool;
};

/// --json.
inline void declare_json(OptionSet& options, bool& json) {
  options.flag("json", "print the report as JSON on standard output", json);
}

}  // namespace kvscope::cli
