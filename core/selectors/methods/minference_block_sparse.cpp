// minference-block-sparse: blocks of queries choose blocks of keys by their means (Jiang et al.,
// arXiv 2407.02490).
//
// Idea: in prefill, per query head, average queries and keys over blocks of 64; score each pair of
// blocks by the product of the means (unscaled: one row's order does not change); each block of
// queries keeps the 100 best blocks of keys that are not in its future. Decode stays dense. Cost
// per call: means (n_q C + n_kv T) d, pairs of whole blocks 2 n_q ceil(C / 64) ceil(T / 64) d
// FLOPs, and one read of the keys. Stores nothing. Fails when one key of a block matters and its
// mean does not show it. Decided here: blocks of keys are aligned to position 0, blocks of queries
// to the call's first query. The published code forces nothing, so a query may lose its own block,
// or everything it sees; forced=diagonal (default) keeps its own block inside top-blocks,
// forced=local also the block before and block 0; none is the published rule. pad-mean divides the
// last, shorter block's mean by 64 as its zero padding does. Sizes from the budget: top-blocks = k
// / block, at least 1. A mean over a query block uses all its queries, and one over the diagonal
// key block all its keys: a row's blocks depend on later tokens of the same block, as in the
// original; what it attends to does not.
#include <algorithm>
#include <limits>

#include "core/attention/row_kernels.hpp"
#include "core/selectors/block_means.hpp"
#include "core/selectors/block_outcomes.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/list_builders.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"

namespace kvscope {

namespace {

enum class ForcedBlocks { none, diagonal, local };

class BlockSparse final : public Selector {
 public:
  Index block_ =
      option(block_, "block", 64, "tokens per block of queries and of keys", in(1, 1 << 20));
  Index top_blocks_ =
      option(top_blocks_, "top-blocks", 100,
             "blocks of keys per block of queries, forced ones included", at_least(1));
  ForcedBlocks forced_ =
      option(forced_, "forced", ForcedBlocks::diagonal, "blocks that are always kept");
  bool pad_mean_ =
      option(pad_mean_, "pad-mean", false, "the last block's mean counts missing tokens as zeros");
  PatternSize sizes_ = option(sizes_, "sizes", PatternSize::options,
                              "top-blocks from the options, or the budget divided by block");

  SelectorCaps caps() const override {
    SelectorCaps caps;
    caps.decode = caps.verify = false;
    caps.owner = ListOwner::q_head;
    if (sizes_ == PatternSize::budget) {
      caps.budgets = {Budget::Kind::tokens, Budget::Kind::pages, Budget::Kind::ratio};
    }
    caps.forced_inside_budget = true;
    caps.page_size = block_;
    return caps;
  }

  Selection do_select(const SelectCall& call) override {
    const auto add_lists = [&](const ListHeads& group, ScoreWorker&, Selection& selection) {
      const Index kv_head = group.kv_head;
      const auto counts = [&](Index pos) { return is_alive(call, kv_head, pos); };
      const BlockMeans keys = block_means(call.k.sub(kv_head), block_,
                                          {.counts = counts, .divide_by_block = pad_mean_});
      for (Index q_head = group.q_heads.begin; q_head < group.q_heads.end; ++q_head) {
        const BlockMeans queries =
            block_means(call.q.sub(q_head), block_, {.divide_by_block = pad_mean_});
        for (Index qb = 0; qb < queries.mean.dim(0); ++qb) {
          selection.add(block_list(call, kv_head, queries, keys, qb));
        }
      }
    };
    return select_by_kv_head(call, std::min(block_, call.n_tok), add_lists);
  }

  SelectCost cost(const SelectCall& call, const Selection&) const override {
    return block_scores_cost(call, block_, block_);
  }

 private:
  KeyList block_list(const SelectCall& call, Index kv_head, const BlockMeans& queries,
                     const BlockMeans& keys, Index qb) const {
    // Of what its rows see.
    const Index end = call.pos_begin + std::min((qb + 1) * block_, call.n_tok);
    const Index diagonal_begin = (call.pos_begin + qb * block_) / block_;
    BlockOutcomes kept(block_, {0, end});
    if (forced_ != ForcedBlocks::none) kept.force({diagonal_begin, kept.blocks.end});
    if (forced_ == ForcedBlocks::local) {
      kept.force({0, 1});
      kept.force({diagonal_begin - 1, diagonal_begin});
    }
    std::vector<double> scores;
    for (Index kb = 0; kb < kept.blocks.end; ++kb) {
      scores.push_back(keys.n_rows[static_cast<std::size_t>(kb)] == 0
                           ? -std::numeric_limits<double>::infinity()
                           : dot_of(queries.mean.view().row(qb), keys.mean.view().row(kb)));
    }
    const Index n_top = sizes_ == PatternSize::options
                            ? top_blocks_
                            : std::max<Index>(1, call.budget.tokens(end, block_) / block_);
    kept.keep_best(scores, n_top - kept.count(BlockOutcome::forced));
    return kept.list(call, kv_head);
  }
};

}  // namespace

void register_minference_block_sparse(SelectorRegistry& registry) {
  SelectorEntry& entry = registry.add<BlockSparse>(
      "minference-block-sparse", "MInference: block-sparse", "arXiv 2407.02490",
      "in prefill, blocks of queries keep the blocks of keys with the best mean product");
  entry.settings = {{.sets = {{"sizes", "budget"}}}};
  entry.presets["minference-block-sparse-official"] = {{"forced", "none"}, {"pad-mean", "true"}};
  entry.presets["minference-block-sparse-frontier"] = {{"forced", "local"}, {"block", "16"}};
}

}  // namespace kvscope
