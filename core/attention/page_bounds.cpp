#include "core/attention/page_bounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "core/attention/topk.hpp"
#include "core/base/error.hpp"

namespace kvscope {

namespace {

/// Widens a box by one key.
void include_key(std::span<const float> key, std::span<float> low, std::span<float> high) {
  for (std::size_t c = 0; c < key.size(); ++c) {
    low[c] = std::min(low[c], key[c]);
    high[c] = std::max(high[c], key[c]);
  }
}

void clear_box(std::span<float> low, std::span<float> high) {
  std::fill(low.begin(), low.end(), std::numeric_limits<float>::infinity());
  std::fill(high.begin(), high.end(), -std::numeric_limits<float>::infinity());
}

PageBoxes::Bound bound_of_box(std::span<const float> q, std::span<const float> low,
                              std::span<const float> high) {
  double sum = 0.0;
  double magnitude = 0.0;
  for (std::size_t c = 0; c < q.size(); ++c) {
    const double x = static_cast<double>(q[c]);
    const double at_low = x * static_cast<double>(low[c]);
    const double at_high = x * static_cast<double>(high[c]);
    sum += std::max(at_low, at_high);
    magnitude += std::max(std::abs(at_low), std::abs(at_high));
  }
  // both U and the dot products are f64 sums of at most d exact f32 products
  const double slack =
      2.0 * static_cast<double>(q.size()) * std::numeric_limits<double>::epsilon() * magnitude;
  return {sum, slack};
}

}  // namespace

PageBoxes::PageBoxes(TensorView<const float> k, Index page_size) : k_(k), page_size_(page_size) {
  if (page_size < 1) {
    throw ConfigError(fmt::format("page-size: expected at least 1 token, found {}", page_size));
  }
  const Index n_whole = k.dim(0) / page_size;
  low_ = Tensor<float>::uninitialized({n_whole, k.dim(1)});
  high_ = Tensor<float>::uninitialized({n_whole, k.dim(1)});
  for (Index page = 0; page < n_whole; ++page) {
    const auto low = low_.view().row(page);
    const auto high = high_.view().row(page);
    clear_box(low, high);
    for (Index t = page * page_size; t < (page + 1) * page_size; ++t) {
      include_key(k.row(t), low, high);
    }
  }
}

TokenRange PageBoxes::keys_of(Index page, TokenRange visible) const {
  const Index begin = std::max(page * page_size_, visible.begin);
  return {begin, std::max(begin, std::min((page + 1) * page_size_, visible.end))};
}

TokenRange PageBoxes::pages_of(TokenRange visible) const {
  if (visible.size() <= 0) return {0, 0};
  return {visible.begin / page_size_, (visible.end - 1) / page_size_ + 1};
}

PageBoxes::Bound PageBoxes::bound(std::span<const float> q, Index page, TokenRange visible) const {
  const TokenRange keys = keys_of(page, visible);
  assert(keys.size() > 0 && keys.end <= k_.dim(0));
  if (keys.size() == page_size_) {
    return bound_of_box(q, low_.view().row(page), high_.view().row(page));
  }
  std::vector<float> low(q.size());
  std::vector<float> high(q.size());
  clear_box(low, high);
  for (Index t = keys.begin; t < keys.end; ++t) include_key(k_.row(t), low, high);
  return bound_of_box(q, low, high);
}

Index quest_page_budget(QuestSemantics semantics, Index budget, Index page_size, Index n_tokens,
                        Index n_pages) {
  if (budget >= n_tokens) return n_pages;
  const Index pages = semantics == QuestSemantics::eval
                          ? std::max<Index>(3, std::min(n_tokens, budget) / page_size)
                          : std::max<Index>(1, budget / page_size);
  return std::min(pages, n_pages);
}

std::vector<Index> quest_select_pages(QuestSemantics semantics, std::span<const double> bounds,
                                      Index budget, Index page_size, Index n_tokens) {
  const auto n_pages = static_cast<Index>(bounds.size());
  if (n_pages == 0) return {};
  const Index k = quest_page_budget(semantics, budget, page_size, n_tokens, n_pages);
  if (semantics == QuestSemantics::eval || k == n_pages) return top_k_sorted_by_index(bounds, k);
  std::vector<Index> kept = top_k_sorted_by_index(bounds.first(bounds.size() - 1), k - 1);
  kept.push_back(n_pages - 1);
  return kept;
}

}  // namespace kvscope
