#include "analysis/sweep/sweep.hpp"

#include <map>
#include <tuple>

#include "analysis/base/replay_pairs.hpp"
#include "analysis/sweep/sweep_rows.hpp"
#include "analysis/sweep/sweep_work.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"

namespace kvscope {

namespace {

using SweepBlocks = std::map<std::tuple<std::size_t, std::size_t, std::size_t>, SweepBlock>;

/// Blocks of items that failed: their rows with names and places, without a number.
void add_empty_blocks(const SweepResult& result, SweepBlocks& blocks) {
  for (std::size_t t = 0; t < result.traces.size(); ++t) {
    for (std::size_t p = 0; p < result.pairs.size(); ++p) {
      for (std::size_t slot = 0; slot < result.traces[t].layers.size(); ++slot) {
        if (!blocks.contains({t, p, slot}))
          blocks.emplace(std::tuple(t, p, slot),
                         empty_sweep_block(result, {.trace = t, .pair = p, .layer_slot = slot}));
      }
    }
  }
}

}  // namespace

SweepResult sweep_result(const SweepPlan& plan, const Work& work, const Store& store) {
  SweepResult result{.config = plan.config,
                     .config_hash = plan.config_hash,
                     .traces = plan.infos,
                     .skipped = plan.skipped};
  for (std::size_t p = 0; p < plan.pairs.size(); ++p) {
    const auto& target = plan.targets[p];
    result.pairs.push_back(pair_label(plan.pairs[p]) + (target ? " " + target->to_string() : ""));
  }
  SweepBlocks blocks;
  std::size_t n_blocks = 0;
  for (std::size_t item = 0; item < work.keys.size(); ++item) {
    const StoredAnswer* const answer = store.find(work.keys[item]);
    if (answer != nullptr && !answer->failure.empty()) continue;
    try {
      for (SweepBlock& block :
           sweep_blocks(plan, plan.items[item], answer_in(store, work.keys[item])))
        blocks.emplace(std::tuple(block.trace, block.pair, block.layer_slot), std::move(block));
    } catch (const nlohmann::json::exception& error) {
      throw FormatError("{}: not what a sweep keeps: {}", store.folder().string(), error.what());
    } catch (const ConfigError& error) {
      throw FormatError("{}: found {}", store.folder().string(), error.what());
    }
  }
  const std::vector<std::string> lacking = lacking_sentences(work, store);
  if (!lacking.empty()) add_empty_blocks(result, blocks);
  result.skipped.insert(result.skipped.end(), lacking.begin(), lacking.end());
  for (const SweepTraceInfo& trace : result.traces)
    n_blocks += trace.layers.size() * result.pairs.size();
  if (blocks.size() != n_blocks)
    throw FormatError("sweep: found {} blocks of rows, expected {}", blocks.size(), n_blocks);
  for (auto& [key, block] : blocks) result.blocks.push_back(std::move(block));
  split_losses(result.blocks);
  return result;
}

}  // namespace kvscope
