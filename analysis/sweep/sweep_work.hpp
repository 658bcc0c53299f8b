// The items of a sweep: a method at a budget in one layer of a trace; in all layers, of methods
// that link them and at equal cost. Those of one layer share its dense attention: a group.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "analysis/runs/work.hpp"
#include "analysis/sweep/sweep.hpp"

namespace kvscope {

/// Plan and pool must outlive the work.
Work sweep_work(const SweepPlan& plan, ThreadPool& pool);

/// The blocks of an item, their places alone.
std::vector<SweepBlock> places_of(const SweepPlan& plan, const SweepItem& item);
/// Fills them from the item's answer. Throws ConfigError or a JSON exception for what the plan
/// cannot have made.
void read_sweep_blocks(const SweepPlan& plan, const nlohmann::ordered_json& answer,
                       std::vector<SweepBlock>& blocks);

}  // namespace kvscope
