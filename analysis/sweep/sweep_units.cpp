#include "analysis/sweep/sweep_units.hpp"

#include <algorithm>
#include <map>

#include "analysis/base/analysis.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/base/replay_pairs.hpp"
#include "analysis/cost/trace_cost.hpp"
#include "analysis/sweep/match_replay.hpp"
#include "analysis/sweep/sweep_rows.hpp"
#include "analysis/units/unit_cost.hpp"
#include "core/base/nan.hpp"
#include "core/sim/replay_heads.hpp"

namespace kvscope {

namespace {

/// Layers of a pair that refused everything: the shape of the replay without a number.
void clear_numbers(std::vector<LayerReplay>& layers) {
  for (LayerReplay& layer : layers) {
    for (PairReplay& pair : layer.pairs) {
      pair.is_dense = false;
      for (auto& values : pair.values) std::ranges::fill(values, kNan);
      std::ranges::fill(pair.mass_rows, kNan);
      pair.ages.fill(0);
    }
  }
}

/// One pair of a sweep at equal cost: its knob is turned, then every layer is measured at the
/// setting.
std::vector<LayerReplay> replay_matched(const MatchScene& scene, const MatchTarget& target,
                                        ReplayPair& pair, MatchLabels& labels,
                                        const ProgressFn& progress) {
  MatchedPair matched = match_pair(scene, pair.selector, target);
  labels = std::move(matched.labels);
  pair.budget = matched.pair.budget;
  const bool is_refused = matched.pair.selector.empty();
  ReplayOptions options = scene.options;
  options.only_costs = is_refused;
  const ReplayPair run = is_refused ? ReplayPair{MethodSpec("full"), std::nullopt} : matched.pair;
  CostedReplay costed = replay_and_cost(scene, run, options, target.quantity, progress);
  std::vector<LayerReplay>& layers = costed.layers;
  if (is_refused) {
    clear_numbers(layers);
    return std::move(layers);
  }
  labels.reached = costed.cost;
  if (!labels.note.empty() && !labels.knob.empty()) labels.note += match_reasons(layers, 0);
  return std::move(layers);
}

/// Opens the unit's trace and replays. Throws Interrupted on a stop.
std::vector<SweepBlock> do_sweep_unit(const SweepPlan& plan, std::size_t number, ThreadPool& pool,
                                      const ProgressFn& progress, const std::stop_token& stop) {
  const SweepUnit& unit = plan.units[number];
  const SweepTrace& trace = plan.traces[unit.trace];
  const auto source = trace.open();
  const auto draft = trace.open_draft ? trace.open_draft() : nullptr;
  std::vector<ReplayPair> pairs;
  for (std::size_t p : unit.pairs) pairs.push_back(plan.pairs[p]);
  const std::optional<MatchTarget> target = plan.targets[unit.pairs.front()];
  MatchLabels match;
  ReplayOptions replay = plan.options.replay;
  WorkCollector works(source->info().n_q, source->info().n_kv, source->info().d_head);
  replay.best_mass = target.has_value();
  if (plan.options.hardware)
    replay.on_answer = [&works](const AnsweredCall& answer) { works.add(answer); };
  const auto layers =
      target
          ? replay_matched({*source, draft.get(), unit.layers, replay, pool, stop,
                            plan.options.hardware ? &*plan.options.hardware : nullptr},
                           *target, pairs.front(), match, progress)
          : replay_layers(*source, draft.get(), unit.layers, pairs, replay, pool, progress, stop);
  const SweepTraceInfo& info = plan.infos[unit.trace];
  std::vector<SweepBlock> blocks(layers.size() * unit.pairs.size());
  pool.parallel_for(static_cast<Index>(blocks.size()), [&](Index index, int) {
    check_stop(stop, "sweep");  // many resamples take seconds
    const LayerReplay& layer = layers[static_cast<std::size_t>(index) / unit.pairs.size()];
    const std::size_t i = static_cast<std::size_t>(index) % unit.pairs.size();
    const auto slot = std::ranges::find(info.layers, layer.layer) - info.layers.begin();
    RowLabels labels;
    labels.trace = trace.name;
    labels.phase = name_of(plan.options.replay.calls.phase);
    labels.pair = pairs[i];
    labels.group = source->info().group();
    labels.n_resamples = plan.options.n_resamples;
    labels.seed = static_cast<std::uint64_t>(plan.options.seed);
    labels.trace_index = unit.trace;
    labels.pair_index = unit.pairs[i];
    labels.match = match;
    const std::vector<LayerWork> calls = works.calls(i, layer.layer);
    const bool is_refused = target && !match.note.empty() && match.reached == std::nullopt;
    if (plan.options.hardware && !calls.empty() && !is_refused) {
      const HardwareProfile& hardware = *plan.options.hardware;
      const LayerCost cost =
          mean_cost(calls, hardware, {1.0, usual_kv_bytes(hardware), std::nullopt});
      labels.predicted_us = 1e6 * cost.stages.total();
      labels.predicted_dense_us = 1e6 * cost.dense;
    }
    blocks[static_cast<std::size_t>(index)] =
        make_sweep_block(layer, i, static_cast<std::size_t>(slot), labels);
  });
  return blocks;
}

}  // namespace

JournalHeader sweep_header(const SweepPlan& plan, const Shard& shard) {
  JournalHeader header{.sweep = {.config = plan.config,
                                 .config_hash = plan.config_hash,
                                 .traces = plan.infos,
                                 .skipped = plan.skipped},
                       .shard = shard,
                       .n_units = plan.units.size()};
  for (std::size_t p = 0; p < plan.pairs.size(); ++p) {
    const auto& target = plan.targets[p];
    header.sweep.pairs.push_back(pair_label(plan.pairs[p]) +
                                 (target ? " " + target->to_string() : ""));
  }
  return header;
}

UnitWork sweep_work(const SweepPlan& plan, ThreadPool& pool, const Shard& shard) {
  UnitWork work;
  work.header = header_line(sweep_header(plan, shard));
  work.n_units = plan.units.size();
  work.may_lack = true;
  // One description for all units of a trace: opening it is what takes time.
  auto infos = std::make_shared<std::map<std::size_t, TraceInfo>>();
  work.cost = [&plan, infos](std::size_t index) {
    const SweepUnit& unit = plan.units[index];
    const SweepTrace& trace = plan.traces[unit.trace];
    if (!infos->contains(unit.trace)) infos->emplace(unit.trace, trace.open()->info());
    const SweepTraceInfo& known = plan.infos[unit.trace];
    std::vector<ReplayPair> pairs;
    for (const std::size_t pair : unit.pairs) pairs.push_back(plan.pairs[pair]);
    const bool by_head = !plan.targets[unit.pairs.front()] && !plan.options.hardware &&
                         goes_by_head(infos->at(unit.trace), pairs, plan.options.replay);
    return replay_unit_cost(infos->at(unit.trace), trace.name, unit.layers, unit.pairs.size(),
                            known.calls, known.q_heads.size(), plan.options.replay, by_head);
  };
  work.run = [&plan, &pool](std::size_t index, const ProgressFn& progress, std::stop_token stop) {
    return unit_line(index, do_sweep_unit(plan, index, pool, progress, stop));
  };
  return work;
}

}  // namespace kvscope
