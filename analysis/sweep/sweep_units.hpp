// The units of a sweep one by one: what run_sweep does in a row, other machines do apart.
#pragma once

#include "analysis/sweep/sweep.hpp"
#include "analysis/sweep/sweep_journal.hpp"
#include "analysis/units/unit_folder.hpp"

namespace kvscope {

/// What the journal of this shard says first.
JournalHeader sweep_header(const SweepPlan& plan, const Shard& shard);

/// Opens the unit's trace and replays. Throws Interrupted on a stop.
std::vector<SweepBlock> do_sweep_unit(const SweepPlan& plan, std::size_t number, ThreadPool& pool,
                                      const ProgressFn& progress, const std::stop_token& stop);

/// Both must outlive the work.
UnitWork sweep_work(const SweepPlan& plan, ThreadPool& pool);

}  // namespace kvscope
