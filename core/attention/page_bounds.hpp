// Quest: the box of a page of keys, and the upper bound it gives for any query.
#pragma once

#include <span>
#include <vector>

#include "core/tensor/tensor.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// Channel-wise smallest and largest key of each page. Page p holds the positions [p * page_size,
/// (p + 1) * page_size) of its KV head, counted from position 0, so a page means the same keys in
/// every step.
class PageBoxes {
 public:
  /// k: [n_keys, d_head], keys at positions 0, 1, ...; only whole pages get a stored box. page_size
  /// >= 1.
  PageBoxes(TensorView<const float> k, Index page_size);

  Index page_size() const { return page_size_; }
  /// Positions of page `page` that lie in `visible`; empty if none does.
  TokenRange keys_of(Index page, TokenRange visible) const;
  /// Pages that hold at least one visible key: [first, last).
  TokenRange pages_of(TokenRange visible) const;

  /// The bound U = sum_c max(q_c * min_c, q_c * max_c) over the visible keys of a page, and the
  /// rounding error that U may carry. A page seen only in part (the last one, or the first one of a
  /// sliding window) has the box of its visible keys: invisible keys never count.
  struct Bound {
    double value = 0.0;
    double slack = 0.0;
  };
  Bound bound(std::span<const float> q, Index page, TokenRange visible) const;

 private:
  TensorView<const float> k_;
  Index page_size_;
  Tensor<float> low_;   // [n_whole_pages, d_head]
  Tensor<float> high_;  // [n_whole_pages, d_head]
};

/// Which pages to keep: K of Quest's two published programs.
enum class QuestSemantics {
  eval,  // accuracy tables: K = min(max(3, min(n_tokens, budget) / page_size), n_pages); all pages
         // compete
  kernel,  // speed figures: budget / page_size pages, the last one always among them; at least that
           // one
};

/// Number of pages kept, the forced last page included: all of them where the budget covers the
/// context (the published quotient of whole pages would drop a page there whenever the last one is
/// not full). n_tokens: visible tokens; budget: tokens.
Index quest_page_budget(QuestSemantics semantics, Index budget, Index page_size, Index n_tokens,
                        Index n_pages);

/// The kept pages (indices into `bounds`), ascending. bounds: [n_pages], best pages have the
/// largest.
std::vector<Index> quest_select_pages(QuestSemantics semantics, std::span<const double> bounds,
                                      Index budget, Index page_size, Index n_tokens);

}  // namespace kvscope
