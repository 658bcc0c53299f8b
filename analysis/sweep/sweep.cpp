#include "analysis/sweep/sweep.hpp"

#include <map>
#include <tuple>

#include "analysis/base/replay_pairs.hpp"
#include "analysis/sweep/sweep_rows.hpp"
#include "analysis/sweep/sweep_work.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"

namespace kvscope {

SweepResult sweep_result(const SweepPlan& plan, const Work& work, const Store& store) {
  SweepResult result{.config = plan.config,
                     .config_hash = plan.config_hash,
                     .traces = plan.infos,
                     .skipped = plan.skipped};
  for (std::size_t p = 0; p < plan.pairs.size(); ++p) {
    const auto& target = plan.targets[p];
    result.pairs.push_back(pair_label(plan.pairs[p]) + (target ? " " + target->to_string() : ""));
  }
  // by trace, pair, layer
  std::map<std::tuple<std::size_t, std::size_t, std::size_t>, SweepBlock> blocks;
  for (std::size_t i = 0; i < work.keys.size(); ++i) {
    const StoredAnswer* const answer = store.find(work.keys[i]);
    std::vector<SweepBlock> of_item = places_of(plan, plan.items[i]);
    try {
      if (answer == nullptr || answer->failure.empty()) {
        read_sweep_blocks(plan, answer_in(store, work.keys[i]), of_item);
      } else {
        for (SweepBlock& block : of_item) block = empty_sweep_block(result, std::move(block));
      }
    } catch (const nlohmann::json::exception& error) {
      throw FormatError("{}: not what a sweep keeps: {}", store.folder().string(), error.what());
    } catch (const ConfigError& error) {
      throw FormatError("{}: found {}", store.folder().string(), error.what());
    }
    for (SweepBlock& block : of_item)
      blocks.emplace(std::tuple(block.trace, block.pair, block.layer_slot), std::move(block));
  }
  const std::vector<std::string> lacking = lacking_sentences(work, store);
  result.skipped.insert(result.skipped.end(), lacking.begin(), lacking.end());
  for (auto& [key, block] : blocks) result.blocks.push_back(std::move(block));
  split_losses(result.blocks);
  return result;
}

}  // namespace kvscope
