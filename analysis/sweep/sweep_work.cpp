#include "analysis/sweep/sweep_work.hpp"

#include <algorithm>
#include <cmath>

#include "analysis/base/analysis.hpp"
#include "analysis/base/base64.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/base/replay_pairs.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/cost/trace_cost.hpp"
#include "analysis/runs/predicted_seconds.hpp"
#include "analysis/sweep/match_replay.hpp"
#include "analysis/sweep/sweep_rows.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
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

/// One pair of a sweep at equal cost: its setting is turned, then every layer is measured at the
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
  if (!labels.note.empty() && !labels.setting.empty()) labels.note += match_reasons(layers, 0);
  return std::move(layers);
}

/// Opens the item's trace and replays. Throws Interrupted on a stop.
std::vector<SweepBlock> do_sweep_unit(const SweepPlan& plan, std::size_t number, ThreadPool& pool,
                                      const ProgressFn& progress, const std::stop_token& stop) {
  const SweepItem& item = plan.items[number];
  const SweepTrace& trace = plan.traces[item.trace];
  const auto source = trace.open();
  const auto draft = trace.open_draft ? trace.open_draft() : nullptr;
  std::vector<ReplayPair> pairs;
  for (std::size_t p : item.pairs) pairs.push_back(plan.pairs[p]);
  const std::optional<MatchTarget> target = plan.targets[item.pairs.front()];
  MatchLabels match;
  ReplayOptions replay = plan.options.replay;
  WorkCollector works(source->info());
  replay.best_mass = target.has_value();
  if (plan.options.hardware)
    replay.on_selection = [&works](const SelectedCall& selected) { works.add(selected); };
  const auto layers =
      target
          ? replay_matched({*source, draft.get(), item.layers, replay, pool, stop,
                            plan.options.hardware ? &*plan.options.hardware : nullptr},
                           *target, pairs.front(), match, progress)
          : replay_layers(*source, draft.get(), item.layers, pairs, replay, pool, progress, stop);
  const SweepTraceInfo& info = plan.infos[item.trace];
  std::vector<SweepBlock> blocks(layers.size() * item.pairs.size());
  pool.parallel_for(static_cast<Index>(blocks.size()), [&](Index index, int) {
    check_stop(stop, "sweep");  // many resamples take seconds
    const LayerReplay& layer = layers[static_cast<std::size_t>(index) / item.pairs.size()];
    const std::size_t i = static_cast<std::size_t>(index) % item.pairs.size();
    const auto slot = std::ranges::find(info.layers, layer.layer) - info.layers.begin();
    RowLabels labels;
    labels.trace = trace.name;
    labels.phase = enum_name(plan.options.replay.calls.phase);
    labels.pair = pairs[i];
    labels.group = source->info().group(layer.layer);
    labels.n_resamples = plan.options.n_resamples;
    labels.seed = static_cast<std::uint64_t>(plan.options.seed);
    labels.trace_index = item.trace;
    labels.pair_index = item.pairs[i];
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

Json block_to_json(const SweepBlock& block) {
  Json rows = Json::array();
  for (const SweepRow& row : block.rows) {
    rows.push_back({row.texts, json_numbers(row.numbers)});
  }
  return {{"trace", block.trace},
          {"pair", block.pair},
          {"layer_slot", block.layer_slot},
          {"rows", std::move(rows)},
          {"grid", text_from_bytes(std::as_bytes(std::span(block.grid)))},
          {"ages", block.ages}};
}

SweepBlock block_from_json(const Json& json, const SweepPlan& plan) {
  SweepBlock block{.trace = json.at("trace").get<std::size_t>(),
                   .pair = json.at("pair").get<std::size_t>(),
                   .layer_slot = json.at("layer_slot").get<std::size_t>()};
  if (block.trace >= plan.infos.size() || block.pair >= plan.pairs.size() ||
      block.layer_slot >= plan.infos[block.trace].layers.size()) {
    throw ConfigError("a block outside the sweep");
  }
  for (const Json& one : json.at("rows")) {
    SweepRow row;
    row.texts = one.at(0).get<decltype(row.texts)>();
    row.text(SweepText::trace) = plan.infos[block.trace].name;  // as it is called now
    std::ranges::copy(numbers_from_json(one.at(1), row.numbers.size()), row.numbers.begin());
    block.rows.push_back(std::move(row));
  }
  const SweepTraceInfo& trace = plan.infos[block.trace];
  // The layer's own row, then one for each query head (make_sweep_block).
  if (block.rows.size() != trace.q_heads.size() + 1) throw ConfigError("a block that lacks rows");
  for (std::size_t r = 0; r < block.rows.size(); ++r) {
    const double layer = block.rows[r].number(SweepNumber::layer);
    const double q_head = block.rows[r].number(SweepNumber::q_head);
    const bool is_in_place =
        layer == static_cast<double>(trace.layers[block.layer_slot]) &&
        (r == 0 ? std::isnan(q_head) : q_head == static_cast<double>(trace.q_heads[r - 1]));
    if (!is_in_place) throw ConfigError("a row of another layer or head");
  }
  const std::size_t n_cells = kReplayMetrics * trace.q_heads.size() * trace.calls.size();
  const auto bytes =
      bytes_from_text(json.at("grid").get_ref<const std::string&>(), n_cells * sizeof(float));
  if (!bytes) throw ConfigError("an array of another size");
  block.grid.resize(n_cells);
  std::ranges::copy(*bytes, std::as_writable_bytes(std::span(block.grid)).begin());
  block.ages = json.at("ages").get<std::vector<std::int64_t>>();
  if (block.ages.size() != kAgeBins) throw ConfigError("a histogram of another size");
  return block;
}

}  // namespace

Work sweep_work(const SweepPlan& plan, ThreadPool& pool) {
  Work work;
  work.command = "sweep";
  work.config = plan.config;
  work.may_lack = true;
  name_items(work, plan.items.size());
  work.seconds = [&plan](std::size_t index) {
    const SweepItem& item = plan.items[index];
    const SweepTraceInfo& known = plan.infos[item.trace];
    return replay_seconds(plan.described[item.trace], item.layers.size(), item.pairs.size(),
                          known.calls, known.q_heads.size(), plan.options.replay);
  };
  work.run = [&plan, &pool, keys = work.keys](std::size_t index, const Lease*,
                                              const ProgressFn& progress, std::stop_token stop) {
    Json blocks = Json::array();
    for (const SweepBlock& block : do_sweep_unit(plan, index, pool, progress, stop))
      blocks.push_back(block_to_json(block));
    return answer_of(keys[index], std::move(blocks));
  };
  work.steps = [&plan](std::size_t index) {
    return static_cast<std::int64_t>(plan.infos[plan.items[index].trace].calls.size());
  };
  work.step_name = "calls";
  return work;
}

std::vector<SweepBlock> sweep_blocks(const SweepPlan& plan, const Json& answer) {
  std::vector<SweepBlock> blocks;
  for (const Json& block : answer) blocks.push_back(block_from_json(block, plan));
  return blocks;
}

}  // namespace kvscope
