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

struct BigBirdOptions {
  Index block = 64;
  Index n_random = 3;
  Index seed = 1;
  template <class Self, class Visit>
  static void visit_fields(Self& self, Visit&& visit) {
    visit(Field{"block", "tokens per block"}.in(1, 1 << 20), self.block);
    visit(Field{"n-random", "random blocks per row of blocks"}.at_least(0), self.n_random);
    visit(Field{"seed", "names the random numbers"}.at_least(0), self.seed);
  }
};

class BigBird final : public Selector {
 public:
  explicit BigBird(const BigBirdOptions& options) : options_(options) {}
  std::string_view name() const override { return "bigbird"; }
  SelectorCaps caps() const override {
    SelectorCaps caps;
    caps.prefill = caps.decode = caps.verify = true;
    caps.owner = ListOwner::q_head;
    caps.is_static = true;
    caps.forced_inside_budget = true;
    caps.page_size = options_.block;
    return caps;
  }
  void reset(const AttentionShape&) override {}

  Selection select(const SelectCall& call) override {
    // Rows share a list where rows of the call and blocks of positions begin together.
    const Index rows_per_list =
        call.pos_begin % options_.block == 0 ? std::min(options_.block, call.n_tok) : 1;
    Selection selection(ListOwner::q_head, call.n_tok, rows_per_list);
    const Index group = call.q.dim(0) / call.k.dim(0);
    for (Index q_head = 0; q_head < call.q.dim(0); ++q_head) {
      for (Index row = 0; row < call.n_tok; row += rows_per_list) {
        const Index last_row = std::min(row + rows_per_list, call.n_tok) - 1;
        KeyList list = block_row(call.layer, q_head, (call.pos_begin + row) / options_.block,
                                 call.pos_begin + last_row + 1);
        remove_dead(call, q_head / group, list);
        selection.add(list);
      }
    }
    return selection;
  }

  SelectCost cost(const SelectCall&, const Selection&) const override { return {}; }

 private:
  /// Keys before `end` of the row of blocks `block`.
  KeyList block_row(Index layer, Index q_head, Index block, Index end) const {
    std::vector<Index> blocks = {0, std::max<Index>(0, block - 1), block};
    if (block > 2) {
      const CounterRng rng({static_cast<std::uint64_t>(options_.seed),
                            static_cast<std::uint64_t>(layer), static_cast<std::uint64_t>(q_head),
                            static_cast<std::uint64_t>(block)});
      std::vector<double> draws(static_cast<std::size_t>(block - 2));  // of blocks 1 .. block - 2
      for (std::size_t i = 0; i < draws.size(); ++i) draws[i] = rng.uniform(i + 1);
      for (const Index i : top_k(draws, options_.n_random)) blocks.push_back(i + 1);
    }
    std::sort(blocks.begin(), blocks.end());
    KeyList list;
    for (const Index b : blocks) {
      append_range(list.forced, b * options_.block, std::min(end, (b + 1) * options_.block));
    }
    return list;
  }

  BigBirdOptions options_;
};

}  // namespace

void register_bigbird(SelectorRegistry& registry) {
  SelectorEntry& entry = registry.add<BigBird, BigBirdOptions>(
      "bigbird", "BigBird: window, global and random blocks", "arXiv 2007.14062",
      "neighbouring blocks, the first block and a few random ones, drawn once");
  entry.knobs = {{.option = "n-random", .low = 0.0, .high = 1 << 14, .is_whole = true}};
}

}  // namespace kvscope
