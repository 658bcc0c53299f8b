// unique: query-aware pages of keys by their mean and deviation (UNIQUE, arXiv 2605.27740; formula
// as an independent engine's sparse_score_meanstd states it, the paper itself was not at hand).
//
// Idea: every page of consecutive keys stores the mean and the standard deviation of each channel.
// A page's score is sum_c (q_c mean_c + a |q_c| deviation_c): its mean key, plus what a key one
// deviation out in every channel's good direction would add. Keep the pages of largest score and
// attend to all their tokens. With a box's centre and half width instead of the moments this is
// Quest; one outlier of a page moves its deviation by 1 / sqrt(P), Quest's box all the way.
//
// Cost per decode step and layer: 4 n_q d N FLOPs for the N pages that compete; reads 2 n_kv d N
// elements (mean and deviation), stores that of all pages, 2 / P of the keys: Quest's cost. By the
// sum over a group, and in chunks over R sampled queries: 2 n_q R d + 4 n_kv d N FLOPs.
//
// Two independent notes on the paper give its score as q.mean + lambda |q| s with the length of the
// query, one number s per page and lambda = 0.5, on pages of 8 with 512 tokens: another offset than
// the engine's, which is what stands here. How s follows from the channels they do not say.
//
// Not an upper bound: a page may hold a key that scores above it, and that is no error. `analyze
// quest`, which counts violations of bounds, looks at the selector quest alone.
//
// Fails where Quest's box would help: a page whose one wanted key is an outlier among keys that
// agree.
//
// Decided where the sources are silent: the first `sink` and the last `recent` tokens (the current
// one included), whole pages that they touch, are kept on top of the budget, which buys whole
// pages, at least one. a = 1. The deviation is divided by the page's number of keys. One list per
// query head as Quest's, or per KV head by the group's sum or largest score. Chunks and
// verification: pages before the call's recent ones compete by the sum of scores over 16 evenly
// sampled queries of the call (floor(i C / 16)) and the group, one list per KV head; `recent`
// counts from the call's first query. A page seen in part (window, dead keys) has the moments of
// the keys that count.
#include <algorithm>
#include <limits>

#include "core/selectors/block_outcomes.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/page_lists.hpp"
#include "core/selectors/registry.hpp"

namespace kvscope {

namespace {

class Unique final : public PageSelector {
 public:
  Unique() : PageSelector(/*n_dense=*/0, /*has_rules=*/false) {}
  double deviations_ =
      option(deviations_, "deviations", 1.0,
             "a: standard deviations that are added to a page's mean", in(0.0, 100.0));
  Index sink_ = option(sink_, "sink", 16, "first tokens that are always kept, by whole pages",
                       in(0, 1 << 30));
  Index recent_ = option(recent_, "recent", 256, "last tokens that are always kept, by whole pages",
                         in(1, 1 << 30));
  Index n_queries_ =
      option(n_queries_, "n-queries", 16, "queries of a chunk whose scores count", in(1, 1 << 30));

  std::string why_no_scores() const override { return "gives no score per key or page"; }
  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (selection.is_dense) return {};
    const bool sums =
        selection.owner == ListOwner::kv_head && (call.n_tok > 1 || owner_ == PageOwner::group_sum);
    return page_scores_cost(call, scored_range(call), page_size_,
                            sums ? std::min(n_queries_, call.n_tok) : 0, kBytesPerElement);
  }

 protected:
  bool scores_pages_apart() const override { return true; }
  /// Pages between the sinks and the recent tokens.
  TokenRange scored_range(const SelectCall& call) const override {
    const Index begin = std::max(call_range(call).begin / page_size_, n_sink_pages());
    return {begin, std::max(begin, first_recent_page(call))};
  }
  void page_scores(const SelectCall& call, const ListHeads& heads, TokenRange pages,
                   ScoreWorker& worker, std::span<const std::span<double>> rows) override {
    const auto& moments = engine_of(call).pages(
        call.layer, heads.kv_head, call.k.sub(heads.kv_head), page_size_, PageMoments());
    const auto add_doubled = [&](std::span<const float> q, std::span<double> sum) {
      PageMoments::add_doubled(q, deviations_, sum);
    };
    score_by_rows(call, heads, moments, pages, std::min(n_queries_, call.n_tok), add_doubled,
                  worker.dots, rows);
  }
  KeyList make_list(const SelectCall& call, const Owner& owner, std::span<const double> scores,
                    TokenRange pages, ScoreWorker&, Summaries&) override {
    BlockOutcomes outcomes(page_size_, call_range(call));
    outcomes.force({0, n_sink_pages()});
    outcomes.force({first_recent_page(call), outcomes.blocks.end});
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    std::vector<double> of_blocks(outcomes.of_block.size(), kNone);
    std::copy(scores.begin(), scores.end(),
              of_blocks.begin() + (scores.empty() ? 0 : pages.begin - outcomes.blocks.begin));
    const auto n_pages = pages.size() - std::count(scores.begin(), scores.end(), kNone);
    const Index n_keys = count_candidates(call, owner.kv_head, keys_of(call, pages));
    if (n_keys > 0)
      outcomes.keep_best(of_blocks, blocks_bought(call.budget.tokens(n_keys, page_size_),
                                                  page_size_, n_keys, n_pages));
    return outcomes.list(call, owner.kv_head);
  }

 private:
  /// The first page that holds a recent token of the call's first query.
  Index first_recent_page(const SelectCall& call) const {
    return std::max<Index>(0, call.pos_begin + 1 - recent_) / page_size_;
  }
  Index n_sink_pages() const { return (sink_ + page_size_ - 1) / page_size_; }
};

}  // namespace

void register_unique(SelectorRegistry& registry) {
  registry.add<Unique>(
      "unique", "UNIQUE: pages by mean and deviation", "arXiv 2605.27740",
      "keeps the pages of keys whose mean key, and a deviation on top, score the most");
}

}  // namespace kvscope
