#include "analysis/sweep/sweep.hpp"

#include <map>
#include <tuple>

#include "analysis/base/analysis.hpp"
#include "analysis/base/mapped.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/sweep/sweep_journal.hpp"
#include "analysis/sweep/sweep_rows.hpp"
#include "analysis/sweep/sweep_units.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"

namespace kvscope {

namespace {

using SweepBlocks = std::map<std::tuple<std::size_t, std::size_t, std::size_t>, SweepBlock>;

/// Blocks of units that failed: their rows with names and places, without a number.
void add_empty_blocks(const SweepResult& result, SweepBlocks& blocks) {
  for (std::size_t t = 0; t < result.traces.size(); ++t) {
    for (std::size_t p = 0; p < result.pairs.size(); ++p) {
      for (std::size_t slot = 0; slot < result.traces[t].layers.size(); ++slot) {
        if (!blocks.contains({t, p, slot}))
          blocks.emplace(std::tuple(t, p, slot), empty_sweep_block(result, {t, p, slot}));
      }
    }
  }
}

}  // namespace

SweepJournal run_sweep(const SweepPlan& plan, const std::optional<std::filesystem::path>& journal,
                       JournalMode mode, const Shard& shard, ThreadPool& pool,
                       const ProgressFn& progress, std::stop_token stop) {
  if (shard.count < 1 || shard.index < 1 || shard.index > shard.count)
    throw ConfigError("shard {}/{}: expected i/n with 1 <= i <= n", shard.index, shard.count);
  const UnitWork work = sweep_work(plan, pool, shard);
  SweepJournal known{.where = journal ? journal->string() : "",
                     .header = sweep_header(plan, shard)};
  const auto keep = [&](std::size_t unit, const Json& line) { known.add(unit, line); };
  Journal lines(journal, mode, "sweep", work.header, keep);
  std::vector<std::size_t> todo;
  for (std::size_t u = 0; u < plan.units.size(); ++u) {
    if (shard.has(u) && !known.units.contains(u)) todo.push_back(u);
  }
  // Progress counts calls of all units that are left, so that the time left is that of the whole
  // sweep.
  std::int64_t total = 0;
  for (std::size_t u : todo)
    total += static_cast<std::int64_t>(plan.infos[plan.units[u].trace].calls.size());
  std::int64_t done = 0;
  for (std::size_t u : todo) {
    check_stop(stop, "sweep");
    ProgressFn of_unit;
    if (progress)
      of_unit = [&](const Progress& p) { progress({"sweep", done + p.done, total, "calls"}); };
    const Json line = work.run(u, of_unit, stop);
    lines.add(line);
    keep(u, line);
    done += static_cast<std::int64_t>(plan.infos[plan.units[u].trace].calls.size());
    if (progress) progress({"sweep", done, total, "calls"});
  }
  return known;
}

SweepResult merge_sweep(const std::vector<std::filesystem::path>& journals) {
  return merge_sweep(mapped<SweepJournal>(
      journals, [](const std::filesystem::path& file) { return read_sweep_journal(file); }));
}

SweepResult merge_sweep(std::vector<SweepJournal> journals) {
  if (journals.empty()) throw ConfigError("merge: expected at least one shard");
  const JournalHeader first = journals.front().header;
  const Index n_shards = first.shard.count;
  SweepResult result = first.sweep;
  std::map<Index, std::string> shards;  // index -> file
  std::vector<std::string> lacking;
  SweepBlocks blocks;
  std::size_t n_units = 0;
  for (SweepJournal& journal : journals) {
    const JournalHeader& header = journal.header;
    const std::string& file = journal.where;
    lacking.insert(lacking.end(), journal.lacking.begin(), journal.lacking.end());
    if (header.sweep.config_hash != result.config_hash) {
      throw ConfigError("merge: {} and {} belong to different sweeps: {}", journals.front().where,
                        file, first_difference(header.sweep.config, result.config));
    }
    if (header.shard.count != n_shards || header.n_units != first.n_units) {
      throw ConfigError("merge: {} is shard {} of {}, expected shards of {}", file,
                        header.shard.index, header.shard.count, n_shards);
    }
    const auto [known, is_new] = shards.emplace(header.shard.index, file);
    if (!is_new) {
      throw ConfigError("merge: {} and {} are both shard {}/{}", known->second, file,
                        header.shard.index, n_shards);
    }
    std::size_t n_of_shard = 0;
    for (std::size_t u = 0; u < first.n_units; ++u) n_of_shard += header.shard.has(u) ? 1 : 0;
    if (journal.units.size() + journal.lacking.size() != n_of_shard) {
      throw ConfigError("merge: {} holds {} of its {} units of work; finish it with --resume", file,
                        journal.units.size(), n_of_shard);
    }
    n_units += journal.units.size();
    for (auto& [unit, of_unit] : journal.units) {
      for (SweepBlock& block : of_unit)
        blocks.emplace(std::tuple(block.trace, block.pair, block.layer_slot), std::move(block));
    }
  }
  for (Index i = 1; i <= n_shards; ++i) {
    if (!shards.contains(i)) {
      throw ConfigError("merge: shard {}/{} is missing ({} of {} given)", i, n_shards,
                        shards.size(), n_shards);
    }
  }
  if (!lacking.empty()) add_empty_blocks(result, blocks);
  result.skipped.insert(result.skipped.end(), lacking.begin(), lacking.end());
  std::size_t n_blocks = 0;
  for (const SweepTraceInfo& trace : result.traces)
    n_blocks += trace.layers.size() * result.pairs.size();
  if (n_units + lacking.size() != first.n_units || blocks.size() != n_blocks) {
    throw FormatError("merge: found {} units with {} blocks, expected {} with {}", n_units,
                      blocks.size(), first.n_units, n_blocks);
  }
  for (auto& [key, block] : blocks) result.blocks.push_back(std::move(block));
  split_losses(result.blocks);
  return result;
}

}  // namespace kvscope
