// Which runs of a simulation go on at once: pairs of a case beside each other, and on a device
// (a GPU) cases as well, as many as its memory holds. What comes out is the same however many do.
#pragma once

#include <functional>
#include <span>

#include "analysis/simulate/simulation.hpp"

namespace kvscope {

/// How many sequences of up to `capacity` tokens the memory of the models' devices still holds, by
/// estimate, at least 1; every number of them on the CPU, where nobody counts.
std::size_t sequences_at_once(const SimulationModels& models, const SimulationOptions& options,
                              Index capacity);

/// Runs body(pair, its own single-threaded pool) for all pairs, n_at_once of them side by side; one
/// pair gets `pool`. An estimate may be wrong: a pair that meets a DeviceMemoryError beside others
/// runs once more when they have ended. So a body hands its result over last.
void for_each_pair(std::span<const std::size_t> pairs, std::size_t n_at_once, ThreadPool& pool,
                   const std::function<void(std::size_t, ThreadPool&)>& body);

/// Runs body(case, pool) for all cases: one after another on the CPU, where each takes all threads;
/// on a device so many at once that it does not wait for the last pair of a case. A case that meets
/// a DeviceMemoryError beside others runs once more when they have ended.
void for_each_case(const SimulationTask& task, const SimulationSetup& setup,
                   std::span<const std::size_t> cases, ThreadPool& pool,
                   const std::function<void(std::size_t, ThreadPool&)>& body);

}  // namespace kvscope
