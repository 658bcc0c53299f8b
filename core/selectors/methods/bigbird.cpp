// bigbird: blocks in a window, a global block and a few random ones (Zaheer et al., arXiv
// 2007.14062).
//
// Idea: positions are cut in blocks of 64. A query in block b sees blocks b - 1 and b, the first
// block, and n_random random blocks that are none of these. Causal adaptation: no block b + 1, no
// last global block, and no dense last row of blocks (where the last one is, is not known before
// the end); random blocks come from 1 .. b - 2, all of them if there are no more than n_random.
// They are drawn once per (seed, layer, query head, block) and are the same in every call, decode
// included: a decode step is a row of its block. Cost: no scoring. Stores nothing. Fails on single
// far keys: it finds one with the chance of its random blocks.
#include <algorithm>

#include "core/attention/topk.hpp"
#include "core/base/rng.hpp"
#include "core/selectors/list_builders.hpp"
#include "core/selectors/registry.hpp"

namespace kvscope {

namespace {

class BigBird final : public Selector {
 public:
  Index block_ = option(block_, "block", 64, "tokens per block", in(1, 1 << 20));
  Index n_random_ =
      option(n_random_, "n-random", 3, "random blocks per row of blocks", at_least(0));
  Index seed_ = option(seed_, "seed", 1, "names the random numbers", at_least(0));

  SelectorCaps caps() const override {
    return {.owner = ListOwner::q_head,
            .needs_all_heads = true,
            .is_static = true,
            .forced_inside_budget = true,
            .page_size = block_};
  }

  Selection do_select(const SelectCall& call) override {
    // Rows share a list where rows of the call and blocks of positions begin together.
    const Index rows_per_list = call.pos_begin % block_ == 0 ? std::min(block_, call.n_tok) : 1;
    Selection selection(ListOwner::q_head, call.n_tok, rows_per_list);
    const Index group = call.q.dim(0) / call.k.dim(0);
    for (Index q_head = 0; q_head < call.q.dim(0); ++q_head) {
      for (Index row = 0; row < call.n_tok; row += rows_per_list) {
        const Index last_row = std::min(row + rows_per_list, call.n_tok) - 1;
        KeyList list = block_row(call.layer, q_head, (call.pos_begin + row) / block_,
                                 call.pos_begin + last_row + 1);
        remove_dead(call, q_head / group, list);
        selection.add(list);
      }
    }
    return selection;
  }

 private:
  /// Keys before `end` of the row of blocks `block`.
  KeyList block_row(Index layer, Index q_head, Index block, Index end) const {
    std::vector<Index> blocks = {0, std::max<Index>(0, block - 1), block};
    if (block > 2) {
      const CounterRng rng(seed_, layer, q_head, block);
      std::vector<double> draws(static_cast<std::size_t>(block - 2));  // of blocks 1 .. block - 2
      for (std::size_t i = 0; i < draws.size(); ++i) draws[i] = rng.uniform(i + 1);
      for (const Index i : top_k(draws, n_random_)) blocks.push_back(i + 1);
    }
    std::sort(blocks.begin(), blocks.end());
    KeyList list;
    for (const Index b : blocks) {
      append_range(list.forced, b * block_, std::min(end, (b + 1) * block_));
    }
    return list;
  }
};

}  // namespace

void register_bigbird(SelectorRegistry& registry) {
  SelectorEntry& entry = registry.add<BigBird>(
      "bigbird", "BigBird: window, global and random blocks", "arXiv 2007.14062",
      "neighbouring blocks, the first block and a few random ones, drawn once");
  entry.settings = {{.option = "n-random", .low = 0.0, .high = 1 << 14, .is_whole = true}};
}

}  // namespace kvscope
