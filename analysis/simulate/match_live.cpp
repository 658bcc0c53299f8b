#include "analysis/simulate/match_live.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>

#include "analysis/base/analysis.hpp"
#include "analysis/simulate/measured_cost.hpp"
#include "analysis/simulate/side_by_side.hpp"
#include "core/base/error.hpp"

namespace kvscope {

namespace {

/// What the task's probes cost under one method alone.
CostTotals probe(const SimulationSetup& setup, const MakeTask& make_task, LivePair pair,
                 ThreadPool& pool, const std::stop_token& stop) {
  SimulationSetup alone = setup;
  alone.pairs = {std::move(pair)};
  const std::unique_ptr<SimulationTask> task = make_task(alone);
  const std::vector<std::size_t> places = task->unit_shape().kept_at;
  const std::size_t only = 0;
  CostTotals costs;
  for (const std::size_t c : task->match_cases()) {
    if (!task->takes(c, only)) continue;
    check_stop(stop, "simulate");
    const UnitResult unit = task->open_case(c, pool, stop)(/*pair=*/0, pool);
    costs.add(costs_of({&unit}, places));
  }
  return costs;
}

/// One pair with its setting where its cost is nearest to its target.
LivePair matched_pair(const SimulationSetup& setup, const MakeTask& make_task, const LivePair& pair,
                      ThreadPool& pool, const MatchContext& context, const std::stop_token& stop) {
  const auto at = [&](const MethodAtSetting& method) {
    LivePair tried = pair;
    tried.options.selector = method.selector;
    tried.options.budget = method.budget;
    return tried;
  };
  MatchedMethod found =
      match_method(pair.options.selector, *pair.match, context, [&](const MethodAtSetting& method) {
        return quantity_of(probe(setup, make_task, at(method), pool, stop), pair.match->quantity);
      });
  LivePair matched = at(found.method);
  matched.asked.budget = found.method.budget;
  matched.labels = std::move(found.labels);
  return matched;
}

}  // namespace

void match_setup(SimulationSetup& setup, const MakeTask& make_task, ThreadPool& pool,
                 const ProgressFn& progress, std::stop_token stop) {
  if (!setup.is_matched()) return;
  std::vector<LivePair> matched(setup.pairs.size());
  std::vector<std::size_t> places(setup.pairs.size());
  for (std::size_t p = 0; p < places.size(); ++p) places[p] = p;
  LivePair full;
  full.options.dense_layers = setup.options.dense_layers;
  full.asked.selector = full.options.selector;
  const CostTotals dense = probe(setup, make_task, full, pool, stop);
  const MatchContext context = {static_cast<Index>(dense.longest), dense.keys()};
  std::mutex mutex;
  std::int64_t n_done = 0;
  const auto report = [&] {
    if (progress)
      progress({"equal cost", n_done, static_cast<std::int64_t>(matched.size()), "methods"});
  };
  report();
  const auto open = [&](std::size_t, ThreadPool&) -> OpenCase {
    return [&](std::size_t p, ThreadPool& own) {
      matched[p] = matched_pair(setup, make_task, setup.pairs[p], own, context, stop);
      return UnitResult{};
    };
  };
  const auto done = [&](std::size_t, std::size_t, const UnitResult&) {
    const std::lock_guard lock(mutex);
    ++n_done;
    report();
  };
  // each probes a case at a time, with its dense prefix beside the method's own keys
  const CaseWork all{0, places};
  const std::size_t n_sequences = sequences_at_once(setup.models, setup.options, context.n_keys);
  run_cases({&all, 1}, 1 + n_sequences / 2, pool, {open, done});
  setup.pairs.clear();
  for (LivePair& pair : matched) {
    const bool is_refused = pair.options.selector.empty();
    if (is_refused) setup.skipped.push_back(fmt::format("{}: {}", pair.label(), pair.labels.note));
    (is_refused ? setup.refused : setup.pairs).push_back(std::move(pair));
  }
  if (setup.pairs.empty())
    throw ConfigError("simulate: nothing is left to do: {}", fmt::join(setup.skipped, "; "));
}

}  // namespace kvscope
