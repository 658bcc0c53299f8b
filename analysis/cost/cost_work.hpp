// The replay behind kvscope cost in items, cut as a sweep's: a method at a budget in one layer of
// the trace, in all layers of methods that link them. An item is the work of every
// call (LayerWork), from which predicted times on any card follow.
#pragma once

#include "analysis/cost/trace_cost.hpp"
#include "analysis/runs/work.hpp"

namespace kvscope {

struct CostReplay {
  const TraceSource& trace;
  const TraceSource* draft = nullptr;  // may be null
  std::vector<Index> layers;
  std::vector<ReplayPair> pairs;
  ReplayOptions options;  // only_costs; on_selection is overwritten
};

/// `settings`: what besides the replay decides the report. The replay and the pool must outlive the
/// work.
Work cost_work(const CostReplay& replay, const nlohmann::ordered_json& settings, ThreadPool& pool);

/// Fills `works` from the answers of all items. Throws FormatError if one is missing.
void read_works(const CostReplay& replay, const Work& work, const Store& store,
                WorkCollector& works);

}  // namespace kvscope
