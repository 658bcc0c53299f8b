#include "analysis/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "analysis/analysis.hpp"
#include "analysis/cost/trace_cost.hpp"
#include "analysis/match_replay.hpp"
#include "analysis/replay_pairs.hpp"
#include "analysis/sweep_journal.hpp"
#include "analysis/sweep_rows.hpp"
#include "core/base/error.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {

JournalHeader header_of(const SweepPlan& plan, const Shard& shard) {
  JournalHeader header;
  header.config_hash = plan.config_hash;
  header.config = plan.config;
  header.shard = shard.index;
  header.n_shards = shard.count;
  header.n_units = plan.units.size();
  header.traces = plan.infos;
  for (std::size_t p = 0; p < plan.pairs.size(); ++p) {
    const auto& target = plan.targets[p];
    header.pairs.push_back(pair_label(plan.pairs[p]) + (target ? " " + target->to_string() : ""));
  }
  header.skipped = plan.skipped;
  return header;
}

void check_same_sweep(const std::filesystem::path& file, const JournalHeader& then,
                      const JournalHeader& now) {
  if (then.config_hash != now.config_hash) {
    throw ConfigError(fmt::format("{} belongs to another sweep ({}, this one is {}): {}",
                                  file.string(), then.config_hash, now.config_hash,
                                  first_difference(now.config, then.config)));
  }
  if (then.shard != now.shard || then.n_shards != now.n_shards) {
    throw ConfigError(fmt::format("{} belongs to shard {}/{}, this is shard {}/{}", file.string(),
                                  then.shard, then.n_shards, now.shard, now.n_shards));
  }
}

/// Layers of a pair that refused everything: the shape of the replay without a number.
void clear_numbers(std::vector<LayerReplay>& layers) {
  for (LayerReplay& layer : layers) {
    for (PairReplay& pair : layer.pairs) {
      pair.is_dense = false;
      for (auto& values : pair.values) std::fill(values.begin(), values.end(), kNan);
      std::fill(pair.mass_rows.begin(), pair.mass_rows.end(), kNan);
      pair.ages.fill(0);
    }
  }
}

/// One pair of a sweep at equal cost: its knob is turned, then every layer is measured at the setting.
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
  std::vector<LayerReplay> layers = replay_side_by_side(scene, run, options, progress);
  if (is_refused) {
    clear_numbers(layers);
    return layers;
  }
  labels.reached = measured_cost(layers, 0, target.quantity);
  if (!labels.note.empty() && !labels.knob.empty()) labels.note += match_reasons(layers, 0);
  return layers;
}

std::vector<SweepBlock> do_unit(const SweepPlan& plan, const SweepUnit& unit, ThreadPool& pool,
                                const ProgressFn& progress, const std::stop_token& stop) {
  const SweepTrace& trace = plan.traces[unit.trace];
  const auto source = trace.open();
  const auto draft = trace.open_draft ? trace.open_draft() : nullptr;
  std::vector<ReplayPair> pairs;
  for (std::size_t p : unit.pairs) pairs.push_back(plan.pairs[p]);
  const std::optional<MatchTarget> target = plan.targets[unit.pairs.front()];
  MatchLabels match;
  ReplayOptions replay = plan.options.replay;
  WorkCollector works(source->info().n_q, source->info().n_kv, source->info().d_head);
  if (plan.options.hardware)
    replay.on_answer = [&works](const AnsweredCall& answer) { works.add(answer); };
  const auto layers =
      target
          ? replay_matched({*source, draft.get(), unit.layers, replay, pool, stop}, *target,
                           pairs.front(), match, progress)
          : replay_layers(*source, draft.get(), unit.layers, pairs, replay, pool, progress, stop);
  const SweepTraceInfo& info = plan.infos[unit.trace];
  std::vector<SweepBlock> blocks(layers.size() * unit.pairs.size());
  pool.parallel_for(static_cast<Index>(blocks.size()), [&](Index index, int) {
    check_stop(stop, "sweep");  // many resamples take seconds
    const LayerReplay& layer = layers[static_cast<std::size_t>(index) / unit.pairs.size()];
    const std::size_t i = static_cast<std::size_t>(index) % unit.pairs.size();
    const auto slot =
        std::find(info.layers.begin(), info.layers.end(), layer.layer) - info.layers.begin();
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

void run_sweep(const SweepPlan& plan, const std::filesystem::path& journal, JournalMode mode,
               const Shard& shard, ThreadPool& pool, const ProgressFn& progress,
               std::stop_token stop) {
  if (shard.count < 1 || shard.index < 1 || shard.index > shard.count) {
    throw ConfigError(
        fmt::format("shard {}/{}: expected i/n with 1 <= i <= n", shard.index, shard.count));
  }
  const JournalHeader header = header_of(plan, shard);
  const bool exists = has_checked_lines(journal);
  if (exists && mode == JournalMode::fresh) {
    throw IoError(fmt::format("{} exists: an earlier sweep did not finish, or this is its shard",
                              journal.string()));
  }
  std::optional<JournalWriter> writer;
  std::vector<std::size_t> todo;
  if (exists && mode == JournalMode::resume) {
    const Journal known = read_journal(journal);
    check_same_sweep(journal, known.header, header);
    writer.emplace(journal, known);
    for (std::size_t u = 0; u < plan.units.size(); ++u) {
      if (!known.units.contains(u)) todo.push_back(u);
    }
  } else {
    writer.emplace(journal, header);
    for (std::size_t u = 0; u < plan.units.size(); ++u) todo.push_back(u);
  }
  std::erase_if(
      todo, [&](std::size_t u) { return static_cast<Index>(u) % shard.count != shard.index - 1; });
  // Progress counts calls of all units that are left, so that the time left is that of the whole
  // sweep.
  std::int64_t total = 0;
  for (std::size_t u : todo)
    total += static_cast<std::int64_t>(plan.infos[plan.units[u].trace].calls.size());
  std::int64_t done = 0;
  for (std::size_t u : todo) {
    check_stop(stop, "sweep");
    ProgressFn of_unit;
    if (progress) {
      of_unit = [&](const Progress& p) { progress({"sweep", done + p.done, total, "calls"}); };
    }
    writer->add(u, do_unit(plan, plan.units[u], pool, of_unit, stop));
    done += static_cast<std::int64_t>(plan.infos[plan.units[u].trace].calls.size());
    if (progress) progress({"sweep", done, total, "calls"});
  }
}

SweepResult merge_sweep(const std::vector<std::filesystem::path>& journals) {
  if (journals.empty()) throw ConfigError("merge: expected at least one shard");
  SweepResult result;
  std::map<Index, std::string> shards;  // index -> file
  std::map<std::tuple<std::size_t, std::size_t, std::size_t>, SweepBlock> blocks;
  std::size_t n_units = 0;
  std::size_t n_expected = 0;
  Index n_shards = 0;
  for (const auto& file : journals) {
    Journal journal = read_journal(file);
    const JournalHeader& header = journal.header;
    if (shards.empty()) {
      result.config = header.config;
      result.config_hash = header.config_hash;
      result.traces = header.traces;
      result.pairs = header.pairs;
      result.skipped = header.skipped;
      n_shards = header.n_shards;
      n_expected = header.n_units;
    } else if (header.config_hash != result.config_hash) {
      throw ConfigError(fmt::format("merge: {} and {} belong to different sweeps: {}",
                                    shards.begin()->second, file.string(),
                                    first_difference(header.config, result.config)));
    } else if (header.n_shards != n_shards || header.n_units != n_expected) {
      throw ConfigError(fmt::format("merge: {} is shard {} of {}, expected shards of {}",
                                    file.string(), header.shard, header.n_shards, n_shards));
    }
    const auto [known, is_new] = shards.emplace(header.shard, file.string());
    if (!is_new) {
      throw ConfigError(fmt::format("merge: {} and {} are both shard {}/{}", known->second,
                                    file.string(), header.shard, n_shards));
    }
    Index n_of_shard = 0;
    for (std::size_t u = 0; u < n_expected; ++u) {
      n_of_shard += static_cast<Index>(u) % n_shards == header.shard - 1 ? 1 : 0;
    }
    if (static_cast<Index>(journal.units.size()) != n_of_shard) {
      throw ConfigError(
          fmt::format("merge: {} holds {} of its {} units of work; finish it with --resume",
                      file.string(), journal.units.size(), n_of_shard));
    }
    n_units += journal.units.size();
    for (auto& [unit, of_unit] : journal.units) {
      for (SweepBlock& block : of_unit) {
        blocks.emplace(std::tuple(block.trace, block.pair, block.layer_slot), std::move(block));
      }
    }
  }
  for (Index i = 1; i <= n_shards; ++i) {
    if (!shards.contains(i)) {
      throw ConfigError(fmt::format("merge: shard {}/{} is missing ({} of {} given)", i, n_shards,
                                    shards.size(), n_shards));
    }
  }
  std::size_t n_blocks = 0;
  for (const SweepTraceInfo& trace : result.traces)
    n_blocks += trace.layers.size() * result.pairs.size();
  if (n_units != n_expected || blocks.size() != n_blocks) {
    throw FormatError(fmt::format("merge: found {} units with {} blocks, expected {} with {}",
                                  n_units, blocks.size(), n_expected, n_blocks));
  }
  for (auto& [key, block] : blocks) result.blocks.push_back(std::move(block));
  return result;
}

}  // namespace kvscope
