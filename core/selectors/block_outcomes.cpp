#include "core/selectors/block_outcomes.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/attention/topk.hpp"
#include "core/selectors/list_builders.hpp"

namespace kvscope {

BlockOutcomes::BlockOutcomes(Index block_size, TokenRange positions)
    : size(block_size), keys(positions) {
  blocks = {keys.begin / size, keys.size() > 0 ? (keys.end - 1) / size + 1 : keys.begin / size};
  of_block.assign(static_cast<std::size_t>(blocks.size()), BlockOutcome::out);
}

void BlockOutcomes::force(TokenRange which) {
  const Index begin = std::max(which.begin, blocks.begin);
  const Index end = std::min(which.end, blocks.end);
  for (Index block = begin; block < end; ++block) of(block) = BlockOutcome::forced;
}

void BlockOutcomes::keep(Index block) {
  if (block >= blocks.begin && block < blocks.end && of(block) == BlockOutcome::out)
    of(block) = BlockOutcome::scored;
}

TokenRange BlockOutcomes::keys_of(Index block) const {
  return {std::max(block * size, keys.begin), std::min((block + 1) * size, keys.end)};
}

Index BlockOutcomes::count(BlockOutcome outcome) const {
  return std::count(of_block.begin(), of_block.end(), outcome);
}

void BlockOutcomes::keep_best(std::span<const double> scores, Index n) {
  std::vector<double> open(scores.begin(), scores.end());
  for (std::size_t i = 0; i < open.size(); ++i) {
    if (of_block[i] != BlockOutcome::out) open[i] = -std::numeric_limits<double>::infinity();
  }
  for (const Index i : top_k_sorted_by_index(open, n))
    of_block[static_cast<std::size_t>(i)] = BlockOutcome::scored;
}

void BlockOutcomes::keep_share(std::span<const double> weights, double share) {
  double total = 0.0;
  double kept = 0.0;
  std::vector<double> open(weights.begin(), weights.end());
  for (std::size_t i = 0; i < open.size(); ++i) {
    total += weights[i];
    const bool is_candidate = of_block[i] == BlockOutcome::out && weights[i] > 0.0;
    if (of_block[i] != BlockOutcome::out) kept += weights[i];
    if (!is_candidate) open[i] = -std::numeric_limits<double>::infinity();
  }
  for (const Index i : top_k(open, static_cast<Index>(open.size()))) {
    if (share < 1.0 && kept >= share * total) break;
    of_block[static_cast<std::size_t>(i)] = BlockOutcome::scored;
    kept += weights[static_cast<std::size_t>(i)];
  }
}

KeyList BlockOutcomes::list(const SelectCall& call, Index kv_head) const {
  KeyList out;
  const auto fill = [&](BlockOutcome outcome, std::vector<KeyPos>& to) {
    to.resize(static_cast<std::size_t>(std::min(count(outcome) * size, keys.size())));
    KeyPos* next = to.data();
    for (Index block = blocks.begin; block < blocks.end; ++block) {
      if (of(block) != outcome) continue;
      const TokenRange range = keys_of(block);
      std::iota(next, next + range.size(), static_cast<KeyPos>(range.begin));
      next += range.size();
    }
    // The first and the last block may be cut.
    to.resize(static_cast<std::size_t>(next - to.data()));
  };
  fill(BlockOutcome::scored, out.scored);
  fill(BlockOutcome::forced, out.forced);
  remove_dead(call, kv_head, out);
  return out;
}

Index blocks_bought(Index budget, Index block_size, Index n_keys, Index n_blocks) {
  if (budget >= n_keys) return n_blocks;
  return std::min(std::max<Index>(1, budget / block_size), n_blocks);
}

}  // namespace kvscope
