// What the runs of a row cost, as counted inside the model: the numbers that units carry, KV
// reductions, and the columns of keys, density, bytes and of a match.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "analysis/simulate/simulation.hpp"

namespace kvscope {

/// attended, visible, loaded, available of LiveStats::kept, then attended, visible, n_rows, bytes,
/// n_calls, longest of its cost: the totals that a unit carries.
inline constexpr std::size_t kKeptValues = 10;
std::vector<double> kept_values(const LiveStats& stats);
/// Of one phase alone.
std::vector<double> kept_values(const LiveStats& stats, Phase phase);

/// The two reductions of the totals from values[at] on, summed over units.
struct Reductions {
  double per_head = 0.0;
  double per_union = 0.0;
};
Reductions reductions_of(const std::vector<const UnitResult*>& units, std::size_t at);

/// The costs of the totals from values[place] on, summed over units and places.
CostTotals costs_of(const std::vector<const UnitResult*>& units,
                    std::span<const std::size_t> places);
double quantity_of(const CostTotals& costs, MatchQuantity quantity);

/// A row of `pair` with its texts model, task, selector and budget_kind and the number budget, as
/// sweeps write them.
nlohmann::ordered_json begin_row(const SimulationSetup& setup, const std::string& task,
                                 std::size_t pair);
/// kept, density and bytes of a row, and with a match also match, knob, match_note and
/// match_reached: what the row's own runs cost; a note says where that is not the target.
void add_cost_cells(nlohmann::ordered_json& row, const SimulationSetup& setup, std::size_t pair,
                    const std::vector<const UnitResult*>& units, std::size_t place);
/// A row of each method that refused every value of its setting: its name, its match and no number.
void add_refused_rows(nlohmann::ordered_json& rows, const SimulationSetup& setup,
                      const std::string& task);

/// What methods of a cell are ranked by: equal targets, where a cost was to be met,
/// else equal budgets.
struct JudgedBudget {
  std::string kind;  // "none" for methods that take none
  double value = 0.0;
};
JudgedBudget judged_budget(const SimulationSetup& setup, std::size_t pair);

}  // namespace kvscope
