#include "analysis/simulate/measured_cost.hpp"

#include <fmt/format.h>

#include <cmath>

#include "core/base/json.hpp"

namespace kvscope {

namespace {

/// Places of the costs behind the four totals of KV reductions.
constexpr std::size_t kFirstCost = 4;

double budget_value(const LivePair& pair) {
  return pair.asked.budget ? pair.asked.budget->value : kNan;
}

std::vector<double> values_of(const CostTotals& kept, const CostTotals& cost) {
  return {kept.attended, kept.visible, kept.loaded, kept.available, cost.attended,
          cost.visible,  cost.n_rows,  cost.bytes,  cost.n_calls,   cost.longest};
}

/// The pair's note, or why this row's own cost is another than the one that the search reached.
std::string row_note(const LivePair& pair, double reached) {
  if (!pair.labels.note.empty() || !pair.match) return pair.labels.note;
  const double target = pair.match->value;
  if (std::abs(reached - target) <= kMatchTolerance * target) return "";
  return fmt::format(
      "the budget setting was found on the first prompts of every length, which reach {}={:.4g} "
      "together; those of this row reach {:.4g}",
      enum_name(pair.match->quantity), pair.labels.reached.value_or(kNan), reached);
}

}  // namespace

std::vector<double> kept_values(const LiveStats& stats) {
  return values_of(stats.all(), stats.all_costs());
}

std::vector<double> kept_values(const LiveStats& stats, Phase phase) {
  return values_of(stats.of(phase), stats.cost_of(phase));
}

Reductions reductions_of(const std::vector<const UnitResult*>& units, std::size_t at) {
  double sums[kFirstCost] = {};
  for (const UnitResult* unit : units) {
    for (std::size_t i = 0; i < kFirstCost; ++i) sums[i] += unit->values[at + i];
  }
  const auto reduction = [](double part, double whole) {
    return whole > 0.0 ? 1.0 - part / whole : 0.0;
  };
  return {reduction(sums[0], sums[1]), reduction(sums[2], sums[3])};
}

CostTotals costs_of(const std::vector<const UnitResult*>& units,
                    std::span<const std::size_t> places) {
  CostTotals costs;
  for (const UnitResult* unit : units) {
    for (const std::size_t place : places) {
      const double* x = unit->values.data() + place + kFirstCost;
      costs.add({.attended = x[0],
                 .visible = x[1],
                 .n_rows = x[2],
                 .bytes = x[3],
                 .n_calls = x[4],
                 .longest = x[5]});
    }
  }
  return costs;
}

double quantity_of(const CostTotals& costs, MatchQuantity quantity) {
  switch (quantity) {
    case MatchQuantity::keys:
      return costs.keys();
    case MatchQuantity::bytes:
      return costs.bytes_per_call();
    case MatchQuantity::us:
      return kNan;  // refused before: set_up_simulation
    case MatchQuantity::density:
      break;
  }
  return costs.density();
}

Json begin_row(const SimulationSetup& setup, const std::string& task, std::size_t pair) {
  const ReplayPair& asked = setup.pairs[pair].asked;
  return {{"model", setup.models.verifier_name},
          {"task", task},
          {"selector", asked.selector.text()},
          {"budget_kind", kind_of(asked.budget)},
          {"budget", budget_value(setup.pairs[pair])}};
}

void add_cost_cells(Json& row, const SimulationSetup& setup, std::size_t pair,
                    const std::vector<const UnitResult*>& units, std::size_t place) {
  const CostTotals costs = costs_of(units, {&place, 1});
  row["kept"] = costs.keys();
  row["density"] = costs.density();
  row["bytes"] = costs.bytes_per_call();
  if (!setup.is_matched()) return;
  const LivePair& live = setup.pairs[pair];
  const double reached = live.match ? quantity_of(costs, live.match->quantity) : kNan;
  row["match"] = live.labels.target;
  row["knob"] = live.labels.setting;
  row["match_note"] = row_note(live, reached);
  row["match_reached"] = reached;
}

void add_refused_rows(Json& rows, const SimulationSetup& setup, const std::string& task) {
  for (const LivePair& pair : setup.refused) {
    rows.push_back({{"model", setup.models.verifier_name},
                    {"task", task},
                    {"selector", pair.asked.selector.text()},
                    {"budget_kind", "none"},
                    {"match", pair.labels.target},
                    {"knob", pair.labels.setting},
                    {"match_note", pair.labels.note}});
  }
}

JudgedBudget judged_budget(const SimulationSetup& setup, std::size_t pair) {
  const LivePair& live = setup.pairs[pair];
  if (live.match && !live.labels.setting.empty())
    return {std::string(enum_name(live.match->quantity)), live.match->value};
  return {kind_of(live.asked.budget), budget_value(live)};
}

}  // namespace kvscope
