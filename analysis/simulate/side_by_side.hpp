// Which runs of a simulation go on at once: all pairs of all cases are one queue, which threads
// take from as they become free, as far as memory goes. What comes out is the same however many do.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "analysis/simulate/simulation.hpp"

namespace kvscope {

/// A case and those of its pairs that are to run.
struct CaseWork {
  std::size_t index = 0;
  std::vector<std::size_t> pairs;
};

/// What a queue calls, from several threads at once.
struct CaseCalls {
  std::function<OpenCase(std::size_t index, ThreadPool& pool)> open;
  std::function<void(std::size_t index, std::size_t pair, UnitResult unit)> done;
};

/// How many sequences of up to `capacity` tokens the memory of the models' backends still holds, by
/// estimate, at least 1; any number of them where nobody counts.
std::size_t sequences_at_once(const SimulationModels& models, const SimulationOptions& options,
                              Index capacity);

/// Opens every case, runs its pairs and hands their results over, each once. As many threads are at
/// work as `pool` has; a run gets one of them, or more where there are fewer runs than threads. An
/// open case and each of its runs count as one sequence of the n_sequences that may exist at once
/// (two exist anyway). An estimate may be wrong: what meets a DeviceMemoryError beside others is
/// tried again when fewer run. What is thrown is what the first run (by case, then by its place in
/// `pairs`) to throw threw, as if they ran one after another; but nothing new begins once `done`
/// has thrown.
void run_cases(std::span<const CaseWork> cases, std::size_t n_sequences, ThreadPool& pool,
               const CaseCalls& calls);

}  // namespace kvscope
