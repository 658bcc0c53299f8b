// The replay behind kvscope cost in units, cut as a sweep's: one layer of the trace for all methods
// that look at layers one by one, all layers for those that link them. A unit is the work of every
// call (LayerWork), from which predicted times on any card follow.
#pragma once

#include "analysis/cost/trace_cost.hpp"
#include "analysis/units/unit_folder.hpp"

namespace kvscope {

struct CostReplay {
  const TraceSource& trace;
  const TraceSource* draft = nullptr;  // may be null
  std::vector<Index> layers;
  std::vector<ReplayPair> pairs;
  ReplayOptions options;  // only_costs; on_answer is overwritten
};

/// `settings`: what besides the replay decides the report. The replay and the pool must outlive the
/// work.
UnitWork cost_work(const CostReplay& replay, const nlohmann::ordered_json& settings,
                   ThreadPool& pool);

/// Fills `works` from the folder of all units. Throws what read_units throws.
void read_cost_units(const UnitFolder& units, WorkCollector& works);

}  // namespace kvscope
