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

/// Throws UsageError naming the engines.
Engine find_engine(std::string_view name);

}  // namespace kvscope::cli
