// spargeattn: blocks of queries keep the blocks of keys that hold most of a compressed softmax
// (Zhang et al., arXiv 2502.18137).
//
// Idea: in prefill, per query head, average queries over blocks of 128 and keys (less their mean
// over all tokens) over blocks of 64. A block whose vectors resemble each other (mean pairwise
// cosine above theta-sim) is judged by its mean: the softmax over the products of means says how
// much a query block needs it; the best blocks up to a share tau of the sum stay. Blocks that do
// not resemble themselves are kept always: dissimilar key blocks for all, dissimilar query blocks
// keep everything. Cost per call:
// means d and similarity 4 d FLOPs for each query and key (the mean of all pairwise cosines is the
// squared norm of the mean unit vector: a norm 2 d, a unit vector d, a sum d), 2 d for each key
// less the mean of all, pairs of whole blocks 2 n_q ceil(C / 128) ceil(T / 64) d, one read of the
// keys. Stores nothing. Fails when one key of a homogeneous block matters. The published count
// leaves out the block that crosses tau, so the kept share is usually below tau; at least one block
// stays. Decided here: blocks of keys are aligned to position 0, of queries to the call's first
// query; the mean of the keys is that of the keys there are at the call (a constant shift per row,
// but it moves the similarity test). rule=top keeps a share of ALL blocks, future ones counted, as
// published. Sizes from the budget: p is tau. The second stage inside the kernel (skipping blocks
// far below the running maximum) depends on the order of the blocks and on exact scores, and is not
// modelled: with the published lambda of 50 it drops weights below e^-50 of the row's largest.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/attention/row_kernels.hpp"
#include "core/attention/topk.hpp"
#include "core/selectors/block_means.hpp"
#include "core/selectors/block_outcomes.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/list_builders.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"

namespace kvscope {

namespace {

enum class KeepRule { cdf, top };

class SpargeAttn final : public Selector {
 public:
  KeepRule rule_ = option(rule_, "rule", KeepRule::cdf,
                          "keep blocks up to a share of the softmax, or a share of the blocks");
  double tau_ =
      option(tau_, "tau", 0.98, "share of the compressed softmax that the kept blocks stay below",
             in(0.0, 1.0));
  double top_share_ = option(top_share_, "top-share", 0.5,
                             "share of all key blocks that is kept with rule=top", in(0.0, 1.0));
  double theta_sim_ =
      option(theta_sim_, "theta-sim", 0.6,
             "mean pairwise cosine above which a block is judged by its mean", in(-1.0, 1.0));
  bool sink_ = option(sink_, "sink", false, "the first block of keys is always kept");
  bool subtract_mean_ =
      option(subtract_mean_, "subtract-mean", true, "keys are taken less their mean");
  Index block_q_ = option(block_q_, "block-q", 128, "queries per block", in(1, 1 << 20));
  Index block_k_ = option(block_k_, "block-k", 64, "keys per block", in(1, 1 << 20));
  PatternSize sizes_ =
      option(sizes_, "sizes", PatternSize::options, "tau from the options, or the budget p");

  SelectorCaps caps() const override { return block_share_caps(sizes_, block_k_); }

  Selection do_select(const SelectCall& call) override {
    const auto add_lists = [&](const ListHeads& group, ScoreWorker&, Selection& selection) {
      const Index kv_head = group.kv_head;
      const auto counts = [&](Index pos) { return is_alive(call, kv_head, pos); };
      const std::vector<double> shift = mean_key(call, kv_head);
      const BlockMeans keys =
          block_means(call.k.sub(kv_head), block_k_,
                      {.counts = counts, .shift = shift, .self_similarity = true});
      for (Index q_head = group.q_heads.begin; q_head < group.q_heads.end; ++q_head) {
        const BlockMeans queries =
            block_means(call.q.sub(q_head), block_q_, {.self_similarity = true});
        for (Index qb = 0; qb < queries.mean.dim(0); ++qb) {
          selection.add(block_list(call, kv_head, queries, keys, qb));
        }
      }
    };
    return select_by_kv_head(call, std::min(block_q_, call.n_tok), add_lists);
  }

  SelectCost cost(const SelectCall& call, const Selection&) const override {
    const double n_shifted = subtract_mean_ ? alive_keys(call, {0, call.k.dim(1)}) : 0.0;
    return block_scores_cost(call, block_q_, block_k_, /*flops=*/5.0) +
           flops_cost(2.0 * n_shifted * static_cast<double>(call.q.dim(2)));
  }

 private:
  std::vector<double> mean_key(const SelectCall& call, Index kv_head) const {
    if (!subtract_mean_) return {};
    const auto k = call.k.sub(kv_head);
    std::vector<double> mean(static_cast<std::size_t>(k.dim(1)), 0.0);
    const std::vector<KeyPos> alive = candidates(call, kv_head, TokenRange{0, k.dim(0)});
    for (const KeyPos pos : alive) {
      const auto key = k.row(pos);
      for (std::size_t c = 0; c < mean.size(); ++c) mean[c] += static_cast<double>(key[c]);
    }
    for (double& value : mean) value /= static_cast<double>(std::max<std::size_t>(1, alive.size()));
    return mean;
  }

  /// Which of the blocks in the compressed softmax stay, by step 4. scores: -infinity takes no
  /// part.
  std::vector<Index> kept_blocks(const SelectCall& call, std::span<const double> scores,
                                 Index n_all_blocks) const {
    std::vector<Index> order = top_k(scores, static_cast<Index>(scores.size()));  // best first
    if (order.empty()) return order;
    std::size_t n_keep = 0;
    if (rule_ == KeepRule::top && sizes_ == PatternSize::options) {
      n_keep = static_cast<std::size_t>(top_share_ * static_cast<double>(n_all_blocks));
    } else {
      const double tau = block_share(sizes_, tau_, call.budget);
      double total = 0.0;
      for (const Index kb : order) total += weight(scores, kb, order.front());
      double sum = 0.0;
      while (n_keep < order.size()) {
        sum += weight(scores, order[n_keep], order.front());
        if (sum > tau * total) break;
        ++n_keep;
      }
    }
    order.resize(std::clamp<std::size_t>(n_keep, 1, order.size()));
    return order;
  }

  static double weight(std::span<const double> scores, Index kb, Index best) {
    return std::exp(scores[static_cast<std::size_t>(kb)] - scores[static_cast<std::size_t>(best)]);
  }

  KeyList block_list(const SelectCall& call, Index kv_head, const BlockMeans& queries,
                     const BlockMeans& keys, Index qb) const {
    const Index end = call.pos_begin + std::min((qb + 1) * block_q_, call.n_tok);
    BlockOutcomes kept(block_k_, {0, end});
    const bool keeps_all = !(queries.self_similarity[static_cast<std::size_t>(qb)] > theta_sim_);
    if (keeps_all) kept.force(kept.blocks);
    if (sink_) kept.force({0, 1});
    std::vector<double> scores(kept.of_block.size(), -std::numeric_limits<double>::infinity());
    for (std::size_t kb = 0; kb < scores.size(); ++kb) {
      const bool is_similar = keys.self_similarity[kb] > theta_sim_;
      if (!is_similar) kept.of_block[kb] = BlockOutcome::forced;
      if (!is_similar || keys.n_rows[kb] == 0) continue;
      scores[kb] = call.score_rule().of(
          dot_of(queries.mean.view().row(qb), keys.mean.view().row(static_cast<Index>(kb))));
    }
    for (const Index kb : kept_blocks(call, scores, keys.mean.dim(0))) kept.keep(kb);
    return kept.list(call, kv_head);
  }
};

}  // namespace

void register_spargeattn(SelectorRegistry& registry) {
  SelectorEntry& entry = registry.add<SpargeAttn>(
      "spargeattn", "SpargeAttn: compressed block filter", "arXiv 2502.18137",
      "in prefill, keeps key blocks by a softmax of block means, and all blocks that a mean cannot "
      "stand for");
  entry.settings = {{.option = "tau", .where = {{"rule", "cdf"}}},
                    {.option = "top-share", .where = {{"rule", "top"}}}};
  entry.presets["spargeattn-topk"] = {{"rule", "top"}, {"theta-sim", "-0.1"}, {"top-share", "0.5"}};
  entry.presets["spargeattn-triton"] = {{"theta-sim", "0.3"}, {"tau", "0.96"}};
  entry.presets["spargeattn-function"] = {{"theta-sim", "0.1"}, {"tau", "0.9"}};
  entry.presets["spargeattn-p"] = {{"sizes", "budget"}};
}

}  // namespace kvscope
