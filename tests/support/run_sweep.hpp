// All of a sweep at once, in this process.
#pragma once

#include "analysis/sweep/sweep_work.hpp"

namespace kvscope {

inline SweepResult run_sweep(const SweepPlan& plan, Store& store, ThreadPool& pool) {
  const Work work = sweep_work(plan, pool);
  run_items(work, store, OnFailure::stop, {}, {});
  return sweep_result(plan, work, store);
}

}  // namespace kvscope
