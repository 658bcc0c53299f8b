// The list of a work's units for schedulers: what each reads, how much memory and how long.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "analysis/units/unit_clock.hpp"
#include "analysis/units/unit_folder.hpp"

namespace kvscope::cli {

/// Memory that this process has now, program, weights and opened files: what every worker has
/// before its first unit.
double memory_of_process();

/// `process`: what memory_of_process() said before a unit was timed.
nlohmann::ordered_json unit_list_json(const UnitWork& work, const UnitClock& clock, double process);
std::string unit_list_text(const UnitWork& work, const UnitClock& clock, double process);

}  // namespace kvscope::cli
