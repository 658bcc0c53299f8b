// The units of a simulation one by one: a (case, pair) each, as its journal has them.
#pragma once

#include "analysis/simulate/simulation.hpp"
#include "analysis/units/unit_folder.hpp"

namespace kvscope {

/// All three must outlive the work. Throws ConfigError for a task whose results decide how many
/// cases there are: its units are not known beforehand.
UnitWork simulation_work(SimulationTask& task, const SimulationSetup& setup, ThreadPool& pool);

/// The result of a folder from which no unit is missing; numbers of those that failed are NaN.
SimulationResult simulation_of_units(const SimulationTask& task, const SimulationSetup& setup,
                                     const UnitFolder& units);

}  // namespace kvscope
