// The base of methods that score pages of keys and keep whole pages (Quest, the page oracle).
//
// Decode: the pages that the query sees compete, by one of four published rules. Chunked prefill
// and verification (our adaptation): pages that lie before the call compete for the budget with one
// score per KV head; the page that holds the call's first token and all later ones are forced
// beside it.
#pragma once

#include <vector>

#include "core/base/fields.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/shared_options.hpp"

namespace kvscope {

using PageRule = ListPlan::Pages;
using PageOwner = ListPlan::Owner;  // of decode

class PageSelector : public Selector {
 public:
  /// n_dense: layers kept dense unless the option says otherwise.
  explicit PageSelector(Index n_dense)
      : dense_layers_(dense_layers_option(dense_layers_, n_dense)) {}
  SelectorCaps caps() const override;
  std::string why_no_scores() const override { return ""; }
  std::vector<Selection> select_budgets(SelectCall call, std::span<const Budget> budgets) final;

 protected:
  /// Fills `rows`, one of [pages.size()] per list: all rows of the call together, for the lists of
  /// `heads`. One row means the heads' sum (or their largest, owner=group_max in decode); else each
  /// head has its own. Only alive keys in `visible` may count; pages without any are dropped
  /// whatever their score. Called for several heads at a time.
  virtual void page_scores(const SelectCall& call, const ListHeads& heads, TokenRange pages,
                           TokenRange visible, ScoreWorker& worker,
                           std::span<const std::span<double>> rows) = 0;
  /// True if a page's score depends on no other page: threads share the pages of a KV head, whose
  /// query heads are then scored together.
  virtual bool scores_pages_apart() const { return false; }
  ListOwner owner_of_call(const SelectCall& call) const;
  /// Pages that compete in this call.
  TokenRange scored_pages(const SelectCall& call) const;
  Index page_size_ = page_size_option(page_size_);
  PageRule rule_ = option(rule_, "pages", PageRule::kernel,
                          "how many pages a budget buys and whether the current one competes");
  PageOwner owner_ =
      option(owner_, "owner", PageOwner::q_head,
             "decode: pages per query head, or per KV head by the group's sum or maximum");

 private:
  /// Scores of all lists' owners. [n_owners][pages.size()]
  std::vector<std::vector<double>> score_owners(const SelectCall& call, ListOwner owner_kind,
                                                TokenRange pages);
  KeyList make_list(const SelectCall& call, Index kv_head, std::span<const double> page_scores,
                    TokenRange pages) const;
  Index dense_layers_;
};

}  // namespace kvscope
