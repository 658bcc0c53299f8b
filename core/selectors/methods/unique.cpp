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
#include "core/selectors/owners.hpp"
#include "core/selectors/page_lists.hpp"
#include "core/selectors/page_rows.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_options.hpp"

namespace kvscope {

namespace {

class Unique final : public Selector {
 public:
  Index page_size_ = page_size_option(page_size_);
  double deviations_ =
      option(deviations_, "deviations", 1.0,
             "a: standard deviations that are added to a page's mean", in(0.0, 100.0));
  PageOwner owner_ =
      option(owner_, "owner", PageOwner::q_head,
             "decode: pages per query head, or per KV head by the group's sum or maximum");
  Index sink_ = option(sink_, "sink", 16, "first tokens that are always kept, by whole pages",
                       in(0, 1 << 30));
  Index recent_ = option(recent_, "recent", 256, "last tokens that are always kept, by whole pages",
                         in(1, 1 << 30));
  Index n_queries_ =
      option(n_queries_, "n-queries", 16, "queries of a chunk whose scores count", in(1, 1 << 30));
  Index dense_layers_ = dense_layers_option(dense_layers_);

  SelectorCaps caps() const override {
    return {.owner = owner_ == PageOwner::q_head ? ListOwner::q_head : ListOwner::kv_head,
            .budgets = {Budget::Kind::tokens, Budget::Kind::pages, Budget::Kind::ratio},
            .page_size = page_size_,
            .dense_layers = dense_layers_};
  }

  std::vector<Selection> select_budgets(SelectCall call, std::span<const Budget> budgets) override {
    const SelectorCaps method = caps();
    for (const Budget& budget : budgets) check_budget_kind(name(), method, budget);
    const bool is_decode = call.phase == Phase::decode && call.n_tok == 1;
    const ListOwner owner =
        is_decode && owner_ == PageOwner::q_head ? ListOwner::q_head : ListOwner::kv_head;
    if (call.layer < dense_layers_) return dense_selections(call, owner, budgets.size());
    const Index n_kv = call.k.dim(0);
    const Index group = call.q.dim(0) / n_kv;
    const TokenRange pages = competing_pages(call);
    if (call.trace != nullptr) {
      call.trace->scored = pages;
      call.trace->scores.assign(
          static_cast<std::size_t>(owner == ListOwner::q_head ? call.q.dim(0) : n_kv), {});
    }
    return select_by_owner(
        call, owner, call.n_tok, budgets.size(),
        [&](const ListHeads& heads, ScoreWorker& worker, std::span<Selection> selections) {
          auto& moments = engine_of(call).kept<PageRows<PageMoments>>(
              nullptr, call.layer, heads.kv_head,
              [&] { return PageRows<PageMoments>(call.k.dim(2), page_size_); },
              static_cast<double>(page_size_));
          moments.append_up_to(call.k.sub(heads.kv_head));
          const auto scores = page_scores(call, heads, moments, pages, worker,
                                          owner == ListOwner::q_head ? group : Index{1});
          for (std::size_t i = 0; i < scores.size(); ++i) {
            if (call.trace != nullptr)
              call.trace->scores[static_cast<std::size_t>(heads.index) * scores.size() + i] =
                  scores[i];
            for (std::size_t b = 0; b < budgets.size(); ++b)
              selections[b].add(list_of(call, heads.kv_head, budgets[b], pages, scores[i]));
          }
        },
        ListOwner::kv_head);
  }

  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (selection.is_dense) return {};
    const bool sums =
        selection.owner == ListOwner::kv_head && (call.n_tok > 1 || owner_ == PageOwner::group_sum);
    return page_scores_cost(call, competing_pages(call), page_size_,
                            sums ? std::min(n_queries_, call.n_tok) : 0, kBytesPerElement);
  }

 private:
  /// The first page that holds a recent token of the call's first query.
  Index first_recent_page(const SelectCall& call) const {
    return std::max<Index>(0, call.pos_begin + 1 - recent_) / page_size_;
  }
  Index n_sink_pages() const { return (sink_ + page_size_ - 1) / page_size_; }

  /// Pages between the sinks and the recent tokens.
  TokenRange competing_pages(const SelectCall& call) const {
    const Index begin = std::max(call_range(call).begin / page_size_, n_sink_pages());
    return {begin, std::max(begin, first_recent_page(call))};
  }

  /// Scores of the competing pages, one row per list of the KV head; -infinity for pages without a
  /// key that counts.
  std::vector<std::vector<double>> page_scores(const SelectCall& call, const ListHeads& heads,
                                               const PageRows<PageMoments>& moments,
                                               TokenRange pages, ScoreWorker& worker,
                                               Index n_lists) const {
    const bool takes_max = n_lists == 1 && owner_ == PageOwner::group_max && call.n_tok == 1;
    const Index n_queries = takes_max ? heads.q_heads.size() : n_lists;
    if (pages.size() == 0)  // they may begin behind the keys
      return std::vector<std::vector<double>>(static_cast<std::size_t>(n_lists));
    const auto width = static_cast<std::size_t>(2 * call.k.dim(2));
    std::vector<double> doubled(static_cast<std::size_t>(n_queries) * width, 0.0);
    const Index n_rows = std::min(n_queries_, call.n_tok);
    for (Index i = 0; i < heads.q_heads.size(); ++i) {
      const auto to = std::span(doubled).subspan(
          n_queries == 1 ? 0 : static_cast<std::size_t>(i) * width, width);
      for (Index r = 0; r < n_rows; ++r)
        PageMoments::add_doubled(call.q.sub(heads.q_heads.begin + i).row(r * call.n_tok / n_rows),
                                 deviations_, to);
    }
    worker.dots.compute(doubled, n_queries, moments.rows(), pages);
    std::vector<std::vector<double>> out;
    for (Index i = 0; i < n_queries; ++i) {
      const std::span<double> row = worker.dots.row(i);
      out.emplace_back(row.begin(), row.end());
    }
    const bool is_whole = all_alive(call, heads.kv_head);
    const TokenRange visible = call_range(call);
    for (Index page = pages.begin; page < pages.end; ++page) {
      const TokenRange range{page * page_size_, (page + 1) * page_size_};
      if (is_whole && range.begin >= visible.begin) continue;
      const std::vector<KeyPos> keys = candidates(
          call, heads.kv_head, TokenRange{std::max(range.begin, visible.begin), range.end});
      if (static_cast<Index>(keys.size()) == range.size()) continue;
      for (Index i = 0; i < n_queries; ++i) {
        out[static_cast<std::size_t>(i)][static_cast<std::size_t>(page - pages.begin)] =
            keys.empty() ? -std::numeric_limits<double>::infinity()
                         : moments.score_of_keys(std::span(doubled).subspan(
                                                     static_cast<std::size_t>(i) * width, width),
                                                 call.k.sub(heads.kv_head), keys);
      }
    }
    for (std::size_t i = 1; takes_max && i < out.size(); ++i) {
      for (std::size_t p = 0; p < out[i].size(); ++p) out[0][p] = std::max(out[0][p], out[i][p]);
    }
    if (takes_max) out.resize(1);
    return out;
  }

  KeyList list_of(const SelectCall& call, Index kv_head, const Budget& budget, TokenRange pages,
                  std::span<const double> scores) const {
    BlockOutcomes outcomes(page_size_, call_range(call));
    outcomes.force({0, n_sink_pages()});
    outcomes.force({first_recent_page(call), outcomes.blocks.end});
    std::vector<double> of_blocks(outcomes.of_block.size(),
                                  -std::numeric_limits<double>::infinity());
    Index n_keys = 0;
    Index n_pages = 0;
    for (Index page = pages.begin; page < pages.end; ++page) {
      const double score = scores[static_cast<std::size_t>(page - pages.begin)];
      of_blocks[static_cast<std::size_t>(page - outcomes.blocks.begin)] = score;
      const TokenRange range = outcomes.keys_of(page);
      n_keys += all_alive(call, kv_head)
                    ? range.size()
                    : static_cast<Index>(candidates(call, kv_head, range).size());
      n_pages += score > -std::numeric_limits<double>::infinity() ? 1 : 0;
    }
    if (n_keys > 0)
      outcomes.keep_best(
          of_blocks, blocks_bought(budget.tokens(n_keys, page_size_), page_size_, n_keys, n_pages));
    return outcomes.list(call, kv_head);
  }
};

}  // namespace

void register_unique(SelectorRegistry& registry) {
  registry.add<Unique>(
      "unique", "UNIQUE: pages by mean and deviation", "arXiv 2605.27740",
      "keeps the pages of keys whose mean key, and a deviation on top, score the most");
}

}  // namespace kvscope
