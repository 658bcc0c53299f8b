#include "analysis/sweep/sweep.hpp"

#include <map>
#include <tuple>

#include "analysis/base/kit.hpp"
#include "analysis/sweep/sweep_journal.hpp"
#include "analysis/sweep/sweep_rows.hpp"
#include "analysis/sweep/sweep_units.hpp"

namespace kvscope {

namespace {

void check_same_sweep(const std::filesystem::path& file, const JournalHeader& then,
                      const JournalHeader& now) {
  if (then.config_hash != now.config_hash) {
    throw ConfigError("{} belongs to another sweep ({}, this one is {}): {}", file.string(),
                      then.config_hash, now.config_hash, first_difference(now.config, then.config));
  }
  if (then.shard != now.shard || then.n_shards != now.n_shards) {
    throw ConfigError("{} belongs to shard {}/{}, this is shard {}/{}", file.string(), then.shard,
                      then.n_shards, now.shard, now.n_shards);
  }
}

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

void run_sweep(const SweepPlan& plan, const std::filesystem::path& journal, JournalMode mode,
               const Shard& shard, ThreadPool& pool, const ProgressFn& progress,
               std::stop_token stop) {
  if (shard.count < 1 || shard.index < 1 || shard.index > shard.count) {
    throw ConfigError("shard {}/{}: expected i/n with 1 <= i <= n", shard.index, shard.count);
  }
  const JournalHeader header = sweep_header(plan, shard);
  const bool exists = has_checked_lines(journal);
  if (exists && mode == JournalMode::fresh) {
    throw IoError("{} exists: an earlier sweep did not finish, or this is its shard",
                  journal.string());
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
    if (progress)
      of_unit = [&](const Progress& p) { progress({"sweep", done + p.done, total, "calls"}); };
    writer->add(u, do_sweep_unit(plan, u, pool, of_unit, stop));
    done += static_cast<std::int64_t>(plan.infos[plan.units[u].trace].calls.size());
    if (progress) progress({"sweep", done, total, "calls"});
  }
}

SweepResult merge_sweep(const std::vector<std::filesystem::path>& journals,
                        const std::vector<std::string>& lacking) {
  if (journals.empty()) throw ConfigError("merge: expected at least one shard");
  SweepResult result;
  std::map<Index, std::string> shards;  // index -> file
  SweepBlocks blocks;
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
      throw ConfigError("merge: {} and {} belong to different sweeps: {}", shards.begin()->second,
                        file.string(), first_difference(header.config, result.config));
    } else if (header.n_shards != n_shards || header.n_units != n_expected) {
      throw ConfigError("merge: {} is shard {} of {}, expected shards of {}", file.string(),
                        header.shard, header.n_shards, n_shards);
    }
    const auto [known, is_new] = shards.emplace(header.shard, file.string());
    if (!is_new) {
      throw ConfigError("merge: {} and {} are both shard {}/{}", known->second, file.string(),
                        header.shard, n_shards);
    }
    Index n_of_shard = 0;
    for (std::size_t u = 0; u < n_expected; ++u)
      n_of_shard += static_cast<Index>(u) % n_shards == header.shard - 1 ? 1 : 0;
    if (static_cast<Index>(journal.units.size() + lacking.size()) != n_of_shard) {
      throw ConfigError("merge: {} holds {} of its {} units of work; finish it with --resume",
                        file.string(), journal.units.size(), n_of_shard);
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
  if (n_units + lacking.size() != n_expected || blocks.size() != n_blocks) {
    throw FormatError("merge: found {} units with {} blocks, expected {} with {}", n_units,
                      blocks.size(), n_expected, n_blocks);
  }
  for (auto& [key, block] : blocks) result.blocks.push_back(std::move(block));
  split_losses(result.blocks);
  return result;
}

}  // namespace kvscope
