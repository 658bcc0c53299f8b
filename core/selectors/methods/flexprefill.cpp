// flexprefill: each head finds out whether block means can be trusted, and takes what covers a
// share of its attention (Lai et al., arXiv 2502.20766, ICLR 2025; official code).
//
// Idea: in prefill, per query head, the last 128 queries' softmax rows are the truth. Summed over
// blocks of keys they are compared with the softmax of the products of their mean query and the
// blocks' mean keys: the root of the Jensen-Shannon divergence. Below tau the head is query-aware:
// every block of queries gets such an estimate, and the best pairs of blocks of the whole call are
// kept until they hold a share gamma of all rows' sum. Else it is vertical-slash: as many of the
// best blocks of columns, and of the best block diagonals, as tokens cover gamma of the truth by
// column and by distance. Both keep at least min-budget tokens of each, block 0 and the diagonal
// among them. Decode stays dense.
//
// Cost per call: 2 n_q R T d FLOPs for R = min(128, C) voters, means of queries and keys (n_q C +
// n_kv T) d, pairs of blocks 2 n_q ceil(C / 128) ceil(T / 128) d (counted for all heads: the test
// needs the last row of them), one read of the keys. Stores nothing. In chunks of 128 the voters
// are all queries: the choice is then half of dense attention's products before anything is saved,
// and the sums by column and distance cost as much again, so that choosing takes nearly dense
// attention's own time (.91 at 32k keys, bench select, one thread of a loaded machine); that is the
// method in chunks, which was made for prompts in one piece (MInference#186 meets the same).
//
// Fails when earlier queries of the call attend elsewhere than the last 128; and, in a
// vertical-slash head, by its own count: where one far key holds all attention, one token covers
// gamma, one block stands for it, and that one is block 0. Only min-budget's further blocks find
// the key.
//
// A trap of the original, not repeated here: where a block's truth or estimate underflows to
// exactly 0, its 0 * log 0 is not a number, neither is the divergence, and NaN < tau is false: the
// head silently becomes vertical-slash. Here 0 log 0 = 0.
//
// Switches: flexprefill-frontier is sparse-frontier's version: gamma 0.65, a local window of 512,
// and no divergence test (tau = 0: all heads are vertical-slash).
//
// Decided where the sources are silent: under chunks the last queries are the chunk's. Blocks of
// keys are aligned to position 0, of queries to the call's first query; a block diagonal o pairs
// each aligned block of the call's positions with the block o before it. The code turns n tokens
// into n / 128 + 1 blocks; so does this, by `block`. Its query-aware nucleus leaves out the pair
// that crosses gamma; the paper's, which reaches it, is taken. Dead keys leave votes and means; a
// block without alive keys has no estimate. Sizes from the budget: p is gamma.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/attention/row_kernels.hpp"
#include "core/selectors/block_means.hpp"
#include "core/selectors/block_outcomes.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/list_builders.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/slash_votes.hpp"

namespace kvscope {

namespace {

/// Square root of the Jensen-Shannon divergence of two distributions (natural logarithm); cells of
/// 0 add nothing.
double root_of_divergence(std::span<const double> p, std::span<const double> q) {
  double sum = 0.0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double mean = 0.5 * (p[i] + q[i]);
    if (p[i] > 0.0) sum += 0.5 * p[i] * std::log(p[i] / mean);
    if (q[i] > 0.0) sum += 0.5 * q[i] * std::log(q[i] / mean);
  }
  return std::sqrt(std::max(0.0, sum));
}

class FlexPrefill final : public Selector {
 public:
  Index block_ =
      option(block_, "block", 128, "tokens per block of queries and of keys", in(1, 1 << 20));
  double gamma_ =
      option(gamma_, "gamma", 0.9, "share of the attention that is covered", in(0.0, 1.0));
  double tau_ =
      option(tau_, "tau", 0.1,
             "root of the Jensen-Shannon divergence below which a head is query-aware (0: none is)",
             in(0.0, 1.0));
  Index min_budget_ =
      option(min_budget_, "min-budget", 512,
             "tokens of columns and of diagonals that are kept at least", in(1, 1 << 30));
  Index n_voters_ = option(n_voters_, "n-voters", 128,
                           "last queries of the call whose attention is looked at", in(1, 1 << 30));
  Index n_local_ = option(
      n_local_, "n-local", 0,
      "last tokens before a block of queries that are kept too, by whole blocks", in(0, 1 << 30));
  PatternSize sizes_ =
      option(sizes_, "sizes", PatternSize::options, "gamma from the options, or the budget p");

  SelectorCaps caps() const override { return block_share_caps(sizes_, block_); }

  Selection do_select(const SelectCall& call) override {
    const double gamma = block_share(sizes_, gamma_, call.budget);
    const SlashVotes votes = slash_votes(call, n_voters_);
    const auto add_lists = [&](const ListHeads& group, ScoreWorker&, Selection& selection) {
      const Index kv_head = group.kv_head;
      const auto counts = [&](Index pos) { return is_alive(call, kv_head, pos); };
      const BlockMeans keys = block_means(call.k.sub(kv_head), block_, {.counts = counts});
      for (Index q_head = group.q_heads.begin; q_head < group.q_heads.end; ++q_head) {
        const auto head = static_cast<std::size_t>(q_head);
        const std::vector<double> truth = block_sums(votes.columns[head]);
        const bool is_query_aware =
            tau_ > 0.0 && root_of_divergence(estimate_of_voters(call, q_head, keys), truth) < tau_;
        std::vector<BlockOutcomes> outcomes = rules(call);
        keep_columns_and_diagonals(call, votes.columns[head], votes.offsets[head],
                                   is_query_aware ? 0.0 : gamma, outcomes);
        if (is_query_aware) keep_pairs(call, q_head, keys, gamma, outcomes);
        for (const BlockOutcomes& one : outcomes) selection.add(one.list(call, kv_head));
      }
    };
    return select_by_kv_head(call, std::min(block_, call.n_tok), add_lists);
  }

  SelectCost cost(const SelectCall& call, const Selection&) const override {
    SelectCost cost = exact_scoring_cost(call, {0, call.k.dim(1)}, std::min(n_voters_, call.n_tok));
    if (tau_ > 0.0) cost.score_flops += block_scores_cost(call, block_, block_).score_flops;
    return cost;
  }

 private:
  /// Of each block of queries: what is kept whatever the votes.
  std::vector<BlockOutcomes> rules(const SelectCall& call) const {
    std::vector<BlockOutcomes> out;
    for (Index first = 0; first < call.n_tok; first += block_) {
      const Index begin = call.pos_begin + first;
      BlockOutcomes& outcomes = out.emplace_back(
          block_, TokenRange{0, call.pos_begin + std::min(first + block_, call.n_tok)});
      outcomes.force({0, 1});
      outcomes.force({std::max<Index>(0, begin - n_local_) / block_, outcomes.blocks.end});
    }
    return out;
  }

  std::vector<double> block_sums(std::span<const double> votes) const {
    std::vector<double> sums(
        (votes.size() + static_cast<std::size_t>(block_) - 1) / static_cast<std::size_t>(block_),
        0.0);
    const double total = sum_of(votes);
    for (std::size_t i = 0; i < votes.size(); ++i)
      sums[i / static_cast<std::size_t>(block_)] += total > 0.0 ? votes[i] / total : 0.0;
    return sums;
  }

  /// How many blocks stand for the tokens that cover a share of all votes.
  Index blocks_that_cover(std::span<const double> votes, double share) const {
    const Index n_least = (min_budget_ + block_ - 1) / block_;
    if (share == 0.0) return n_least;
    std::vector<double> falling(votes.begin(), votes.end());
    std::sort(falling.begin(), falling.end(), std::greater<>());
    const double target = share * sum_of(votes);
    double sum = 0.0;
    Index n_tokens = 1;
    for (const double vote : falling) {
      sum += vote;
      if (sum > target) break;
      ++n_tokens;
    }
    return std::max(n_tokens / block_ + 1, n_least);
  }

  /// Marks the best blocks of columns and the best block diagonals; share 0: min-budget alone.
  void keep_columns_and_diagonals(const SelectCall& call, std::span<const double> columns,
                                  std::span<const double> offsets, double share,
                                  std::span<BlockOutcomes> outcomes) const {
    const Index first_block = call.pos_begin / block_;
    const auto best = [&](std::span<const double> votes) {
      BlockOutcomes chosen(block_, {0, static_cast<Index>(votes.size())});
      chosen.force({0, 1});  // the first column and the main diagonal count inside
      chosen.keep_best(block_sums(votes), blocks_that_cover(votes, share) - 1);
      std::vector<Index> kept;
      for (Index i = 0; i < chosen.blocks.end; ++i)
        if (chosen.of(i) != BlockOutcome::out) kept.push_back(i);
      return kept;
    };
    const std::vector<Index> kept_columns = best(columns);
    const std::vector<Index> kept_diagonals = best(offsets);
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      const Index begin = call.pos_begin + static_cast<Index>(i) * block_;
      for (const Index column : kept_columns) outcomes[i].keep(column);
      for (const Index diagonal : kept_diagonals) {
        for (Index own = std::max(first_block, begin / block_); own < outcomes[i].blocks.end; ++own)
          outcomes[i].keep(own - diagonal);
      }
    }
  }

  /// Softmax over the blocks of keys of the products of a mean query with their means. [n_blocks]
  std::vector<double> estimate(const SelectCall& call, std::span<const double> query,
                               const BlockMeans& keys, Index n_blocks) const {
    std::vector<double> weights(static_cast<std::size_t>(n_blocks),
                                -std::numeric_limits<double>::infinity());
    for (Index b = 0; b < n_blocks; ++b) {
      if (keys.n_rows[static_cast<std::size_t>(b)] > 0)
        weights[static_cast<std::size_t>(b)] =
            call.score_rule().of(dot_of(query, keys.mean.view().row(b)));
    }
    const double largest = max_of(weights);
    if (!(largest > -std::numeric_limits<double>::infinity()))
      return std::vector<double>(weights.size(), 0.0);
    const double sum = exp_row(weights, largest, weights).sum;
    for (double& weight : weights) weight /= sum;
    return weights;
  }

  std::vector<double> estimate_of_voters(const SelectCall& call, Index q_head,
                                         const BlockMeans& keys) const {
    const Index n = std::min(n_voters_, call.n_tok);
    const BlockMeans voters =
        block_means(call.q.sub(q_head).range(0, call.n_tok - n, call.n_tok), n, {});
    return estimate(call, voters.mean.view().row(0), keys, keys.mean.dim(0));
  }

  /// Marks the best pairs of blocks of the whole call.
  void keep_pairs(const SelectCall& call, Index q_head, const BlockMeans& keys, double gamma,
                  std::span<BlockOutcomes> outcomes) const {
    const BlockMeans queries = block_means(call.q.sub(q_head), block_, {});
    std::vector<double> weights;  // of all pairs, block of queries by block of queries
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      const std::vector<double> row = estimate(call, queries.mean.view().row(static_cast<Index>(i)),
                                               keys, outcomes[i].blocks.end);
      weights.insert(weights.end(), row.begin(), row.end());
    }
    BlockOutcomes pairs(/*block_size=*/1, {0, static_cast<Index>(weights.size())});
    pairs.keep_share(weights, gamma);
    Index at = 0;
    for (BlockOutcomes& one : outcomes) {
      for (Index block = 0; block < one.blocks.end; ++block, ++at) {
        if (pairs.of(at) != BlockOutcome::out) one.keep(block);
      }
    }
  }
};

}  // namespace

void register_flexprefill(SelectorRegistry& registry) {
  SelectorEntry& entry = registry.add<FlexPrefill>(
      "flexprefill", "FlexPrefill: block means where they can be trusted", "arXiv 2502.20766",
      "in prefill, a head takes the blocks, or the columns and diagonals, that cover a share of "
      "its attention");
  entry.settings = {{.option = "gamma"}};
  entry.presets["flexprefill-frontier"] = {{"gamma", "0.65"}, {"tau", "0"}, {"n-local", "512"}};
}

}  // namespace kvscope
