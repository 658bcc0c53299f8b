// Equal cost inside a running model: every method's setting is turned until the task's own prompts
// cost what they should.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>

#include "analysis/simulate/simulation.hpp"
#include "core/base/progress.hpp"

namespace kvscope {

/// Makes the task of a setup, which must outlive it.
using MakeTask = std::function<std::unique_ptr<SimulationTask>(const SimulationSetup&)>;

/// Turns the settings of the pairs that have a target (SimulationOptions::match), by the search
/// that sweeps use (match.hpp), on the cases that SimulationTask::match_cases names. A method
/// without a setting stays as it is, one that refuses every value goes to setup.refused;
/// labels.note says so. Layers that a method leaves dense count. The same for any number of
/// threads. Throws ConfigError if every method refuses, Interrupted on a stop.
void match_setup(SimulationSetup& setup, const MakeTask& make_task, ThreadPool& pool,
                 const ProgressFn& progress = {}, std::stop_token stop = {});

}  // namespace kvscope
