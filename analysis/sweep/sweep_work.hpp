// The items of a sweep: one layer of a trace for all methods that look at layers one by one, all
// layers for those that link them, at equal cost one for each method.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "analysis/runs/work.hpp"
#include "analysis/sweep/sweep.hpp"

namespace kvscope {

/// Plan and pool must outlive the work.
Work sweep_work(const SweepPlan& plan, ThreadPool& pool);

/// The blocks in an item's answer. Throws ConfigError or a JSON exception for what the plan cannot
/// have made.
std::vector<SweepBlock> sweep_blocks(const SweepPlan& plan, const nlohmann::ordered_json& answer);

}  // namespace kvscope
