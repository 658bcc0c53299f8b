// The base of methods that score pages of keys and keep whole pages (Quest, UNIQUE, the page
// oracle).
//
// Decode: the pages that the query sees compete, by one of four published rules. Chunked prefill
// and verification (our adaptation): pages that lie before the call compete for the budget with one
// score per KV head; the page that holds the call's first token and all later ones are forced
// beside it. UNIQUE has no such rule: its pages between sinks and recent tokens always compete.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "core/base/fields.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/page_rows.hpp"
#include "core/selectors/shared_options.hpp"
#include "core/selectors/shared_scores.hpp"

namespace kvscope {

using PageRule = ListPlan::Pages;
using PageOwner = ListPlan::Owner;  // of decode

class PageSelector : public SharedScoreSelector {
 public:
  /// n_dense: layers kept dense unless the option says otherwise. has_rules: the four rules are an
  /// option.
  explicit PageSelector(Index n_dense, bool has_rules = true)
      : rule_(has_rules
                  ? option(rule_, "pages", PageRule::kernel,
                           "how many pages a budget buys and whether the current one competes")
                  : PageRule::frontier),
        dense_layers_(dense_layers_option(dense_layers_, n_dense)) {}
  SelectorCaps caps() const override;

 protected:
  /// Fills `rows`, one of [pages.size()] per list: all rows of the call together, for the lists of
  /// `heads`. One row means the heads' sum (or their largest, owner=group_max in decode); else each
  /// head has its own. Only alive keys that the call sees may count; pages without any are dropped
  /// whatever their score. Called for several heads at a time.
  virtual void page_scores(const SelectCall& call, const ListHeads& heads, TokenRange pages,
                           ScoreWorker& worker, std::span<const std::span<double>> rows) = 0;
  /// True if a page's score depends on no other page: threads share the pages of a KV head, whose
  /// query heads are then scored together.
  virtual bool scores_pages_apart() const { return false; }
  /// page_scores by products of doubled queries with the rows of `table`. n_rows: evenly spaced
  /// queries of the call that count; add_doubled(q, sum): of one of them.
  template <class Statistic, class AddDoubled>
  void score_by_rows(const SelectCall& call, const ListHeads& heads,
                     const PageRows<Statistic>& table, TokenRange pages, Index n_rows,
                     const AddDoubled& add_doubled, KeyDots& dots,
                     std::span<const std::span<double>> rows) const;
  ListOwner owner_of_call(const SelectCall& call) const override;
  /// Pages that compete in this call.
  TokenRange scored_range(const SelectCall& call) const override;
  bool score_owners(const SelectCall& call, ListOwner owner_kind, TokenRange pages,
                    std::span<const std::span<double>> scores) final;
  void leave_out_dead(const SelectCall& call, Index kv_head, TokenRange pages,
                      std::span<double> scores) const final;
  KeyList make_list(const SelectCall& call, const Owner& owner, std::span<const double> scores,
                    TokenRange pages, ScoreWorker& worker, Summaries& summaries) override;
  /// Positions of these pages that the call sees.
  TokenRange keys_of(const SelectCall& call, TokenRange pages) const;
  Index page_size_ = page_size_option(page_size_);
  PageRule rule_;
  PageOwner owner_ =
      option(owner_, "owner", PageOwner::q_head,
             "decode: pages per query head, or per KV head by the group's sum or maximum");

 private:
  Index dense_layers_;
};

template <class Statistic, class AddDoubled>
void PageSelector::score_by_rows(const SelectCall& call, const ListHeads& heads,
                                 const PageRows<Statistic>& table, TokenRange pages, Index n_rows,
                                 const AddDoubled& add_doubled, KeyDots& dots,
                                 std::span<const std::span<double>> rows) const {
  if (pages.size() == 0) return;  // they may begin behind the keys
  const TensorView<const float> k = call.k.sub(heads.kv_head);
  const bool takes_max = owner_ == PageOwner::group_max && call.n_tok == 1;
  const bool is_summed = rows.size() == 1 && !takes_max;  // scores are linear in doubled queries
  const auto width = static_cast<std::size_t>(2 * call.k.dim(2));
  const Index n_queries = is_summed ? 1 : heads.q_heads.size();
  std::vector<double> doubled(static_cast<std::size_t>(n_queries) * width, 0.0);
  const auto query = [&](Index i) {
    return std::span(doubled).subspan(static_cast<std::size_t>(i) * width, width);
  };
  for (Index i = 0; i < heads.q_heads.size(); ++i) {
    for (Index row = 0; row < n_rows; ++row)
      add_doubled(call.q.sub(heads.q_heads.begin + i).row(row * call.n_tok / n_rows),
                  query(is_summed ? 0 : i));
  }
  dots.compute(doubled, n_queries, table.rows(), pages);
  const bool is_whole =
      all_alive(call, heads.kv_head) && pages.begin * page_size_ >= call_range(call).begin;
  for (Index page = pages.begin; !is_whole && page < pages.end; ++page) {
    // one whose keys do not all count is scored by those that do
    const TokenRange range = keys_of(call, {page, page + 1});
    if (count_candidates(call, heads.kv_head, range) == range.end - page * page_size_) continue;
    const std::vector<KeyPos> keys = candidates(call, heads.kv_head, range);
    for (Index i = 0; i < n_queries; ++i)
      dots.row(i)[static_cast<std::size_t>(page - pages.begin)] =
          keys.empty() ? -std::numeric_limits<double>::infinity()
                       : table.score_of_keys(query(i), k, keys);
  }
  for (Index i = 0; i < n_queries; ++i) {
    const std::span<const double> scores = dots.row(i);
    const std::span<double> out = rows[rows.size() == 1 ? 0 : static_cast<std::size_t>(i)];
    for (std::size_t p = 0; p < out.size(); ++p)
      out[p] = takes_max && i > 0 ? std::max(out[p], scores[p]) : scores[p];
  }
}

}  // namespace kvscope
