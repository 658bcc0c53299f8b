// The units of a sweep one by one: what run_sweep does in a row, other machines do apart.
#pragma once

#include "analysis/sweep/sweep.hpp"
#include "analysis/sweep/sweep_journal.hpp"
#include "analysis/units/unit_folder.hpp"

namespace kvscope {

/// What the journal of this shard says first.
JournalHeader sweep_header(const SweepPlan& plan, const Shard& shard);

/// All units, whatever the shard. Plan and pool must outlive the work.
UnitWork sweep_work(const SweepPlan& plan, ThreadPool& pool, const Shard& shard = {});

}  // namespace kvscope
