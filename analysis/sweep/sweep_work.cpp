#include "analysis/sweep/sweep_work.hpp"

#include <algorithm>
#include <cmath>

#include "analysis/base/analysis.hpp"
#include "analysis/base/base64.hpp"
#include "analysis/base/calibration_notes.hpp"
#include "analysis/base/checked_lines.hpp"
#include "analysis/base/mapped.hpp"
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

/// Opens the trace of these items of one group and replays: [layer, item]. Throws Interrupted on a
/// stop.
std::vector<SweepBlock> do_sweep_items(const SweepPlan& plan, std::span<const std::size_t> items,
                                       ThreadPool& pool, const ProgressFn& progress,
                                       const std::stop_token& stop) {
  const SweepItem& item = plan.items[items.front()];
  const SweepTrace& trace = plan.traces[item.trace];
  const auto source = trace.open();
  const auto draft = trace.open_draft ? trace.open_draft() : nullptr;
  std::vector<ReplayPair> pairs;
  for (const std::size_t i : items) pairs.push_back(plan.pairs[plan.items[i].pair]);
  const std::optional<MatchTarget> target = plan.targets[item.pair];
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
  std::vector<SweepBlock> blocks(layers.size() * items.size());
  pool.parallel_for(static_cast<Index>(blocks.size()), [&](Index index, int) {
    check_stop(stop, "sweep");  // many resamples take seconds
    const LayerReplay& layer = layers[static_cast<std::size_t>(index) / items.size()];
    const std::size_t i = static_cast<std::size_t>(index) % items.size();
    const auto slot = std::ranges::find(info.layers, layer.layer) - info.layers.begin();
    RowLabels labels;
    labels.trace = trace.name;
    labels.phase = enum_name(plan.options.replay.calls.phase);
    labels.pair = pairs[i];
    labels.group = source->info().group(layer.layer);
    labels.n_resamples = plan.options.n_resamples;
    labels.seed = static_cast<std::uint64_t>(plan.options.seed);
    labels.trace_index = item.trace;
    labels.pair_index = plan.items[items[i]].pair;
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
  return {{"rows", std::move(rows)},
          {"grid", text_from_bytes(std::as_bytes(std::span(block.grid)))},
          {"ages", block.ages}};
}

/// `block`: its place alone.
SweepBlock block_from_json(const Json& json, const SweepPlan& plan, SweepBlock block) {
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

/// By pair, what decides its numbers on any recording, whichever pairs are asked beside it.
std::vector<std::string> questions_of_pairs(const SweepPlan& plan, const Work& work) {
  std::vector<std::string> questions;
  for (std::size_t p = 0; p < plan.pairs.size(); ++p) {
    Json own = {{"pair", pair_label(plan.pairs[p])}};
    if (plan.targets[p]) own["target"] = plan.targets[p]->to_string();
    add_artifacts({plan.pairs[p].selector}, own);
    questions.push_back(work.hash(
        {"selectors", "budgets", "match", "artifacts", "layers", "traces", "draft_traces"}, own));
  }
  return questions;
}

std::string key_of(const SweepPlan& plan, const SweepItem& item, const std::string& question) {
  Json trace = plan.config.at("traces").at(item.trace);
  trace.erase("name");
  Json of_item = {question, trace, item.trace, item.layers};  // its place seeds the intervals
  if (plan.pairs[item.pair].selector.caps().needs_draft)
    of_item.push_back(plan.config.at("draft_traces").at(item.trace));
  return config_checksum(of_item);
}

}  // namespace

Work sweep_work(const SweepPlan& plan, ThreadPool& pool) {
  Work work;
  work.command = "sweep";
  work.config = plan.config;
  work.may_lack = true;
  const std::vector<std::string> questions = questions_of_pairs(plan, work);
  for (const SweepItem& item : plan.items) {
    work.keys.push_back(key_of(plan, item, questions[item.pair]));
    work.groups.push_back(item.group);
  }
  work.seconds = [&plan](std::size_t index) {
    const SweepItem& item = plan.items[index];
    const SweepTraceInfo& known = plan.infos[item.trace];
    return replay_seconds(plan.described[item.trace], item.layers.size(),
                          n_in_group(plan.items, index), known.calls, known.q_heads.size(),
                          plan.options.replay);
  };
  work.run = [&plan, &pool, keys = work.keys](std::span<const std::size_t> items, const Lease*,
                                              const ProgressFn& progress, std::stop_token stop) {
    const std::vector<SweepBlock> blocks = do_sweep_items(plan, items, pool, progress, stop);
    std::vector<Json> lines;
    for (std::size_t i = 0; i < items.size(); ++i) {
      Json answer = Json::array();
      for (std::size_t at = i; at < blocks.size(); at += items.size())
        answer.push_back(block_to_json(blocks[at]));
      lines.push_back(answer_of(keys[items[i]], std::move(answer)).front());
    }
    return lines;
  };
  work.steps = [&plan](std::size_t index) {
    return static_cast<std::int64_t>(plan.infos[plan.items[index].trace].calls.size());
  };
  work.step_name = "calls";
  return work;
}

std::vector<SweepBlock> places_of(const SweepPlan& plan, const SweepItem& item) {
  const std::vector<Index>& layers = plan.infos[item.trace].layers;
  return mapped<SweepBlock>(item.layers, [&](Index layer) {
    const auto slot = std::ranges::find(layers, layer) - layers.begin();
    return SweepBlock{
        .trace = item.trace, .pair = item.pair, .layer_slot = static_cast<std::size_t>(slot)};
  });
}

void read_sweep_blocks(const SweepPlan& plan, const Json& answer, std::vector<SweepBlock>& blocks) {
  if (answer.size() != blocks.size()) throw ConfigError("an answer of other layers");
  for (std::size_t l = 0; l < blocks.size(); ++l)
    blocks[l] = block_from_json(answer[l], plan, std::move(blocks[l]));
}

}  // namespace kvscope
