// Boxes of pages of keys that grow with the cache: Quest's metadata of one KV head, laid out so
// that the bounds of all pages are one matrix product.
//
// The bound sum_c max(q_c low_c, q_c high_c) takes high where q_c >= 0 and low elsewhere, so it is
// the dot product of (max(q, 0), min(q, 0)) with (high, low). It is linear in that doubled query:
// bounds of several queries can be summed by summing doubled queries first.
#pragma once

#include <span>
#include <vector>

#include "core/tensor/tensor.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

class PageTable {
 public:
  /// bits: 16 keeps boxes as they are; fewer quantise each corner to 2^bits levels between its own
  /// smallest and largest channel. page_size >= 1.
  PageTable(Index d_head, Index page_size, int bits);

  /// Takes the keys from n_keys() on. k [n_ctx, d_head] from position 0.
  void append_up_to(TensorView<const float> k);
  /// Forgets positions >= n_keys. A page cut in two is rebuilt by the next append_up_to: a minimum
  /// cannot be undone.
  void truncate(Index n_keys);

  Index n_keys() const { return n_keys_; }
  Index page_size() const { return page_size_; }
  Index n_pages() const { return (n_keys_ + page_size_ - 1) / page_size_; }

  /// (max(q, 0), min(q, 0)) as [2 * d_head], for one query.
  static std::vector<double> doubled(std::span<const float> q);
  /// Bounds of the pages [pages.begin, pages.end) for one doubled query, [pages.size()].
  std::vector<double> bounds(std::span<const double> doubled_query, TokenRange pages) const;
  /// The same for a page that holds only these keys (positions in k), which must not be empty.
  double bound_of_keys(std::span<const double> doubled_query, TensorView<const float> k,
                       std::span<const std::int32_t> keys) const;
  /// Corners of a page: (high, low) as [2 * d_head].
  std::vector<double> box(Index page) const;

 private:
  void store(Index page, std::span<const double> box);
  std::vector<double> quantised(std::vector<double> box) const;
  Index d_head_;
  Index page_size_;
  int bits_;
  Index n_keys_ = 0;
  std::vector<double> open_box_;  // exact corners of the last page while it is not full
  std::vector<double>
      panels_;  // [n_panels][2 * d_head][kPanelKeys]: pages in the layout of panel_dots
};

}  // namespace kvscope
