// Boxes of pages of keys that grow with the cache: Quest's metadata of one KV head, a row per page,
// so that bounds of all pages are products of a query with rows.
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
  /// (high, low) of every page. [n_pages, 2 * d_head]
  TensorView<const float> boxes() const { return {boxes_.data(), {n_pages(), 2 * d_head_}}; }

  /// sum += (max(q, 0), min(q, 0)). q [d_head], sum [2 * d_head]
  static void add_doubled(std::span<const float> q, std::span<double> sum);
  /// The bound of a page that holds only these keys (positions in k), which must not be empty.
  double bound_of_keys(std::span<const double> doubled_query, TensorView<const float> k,
                       std::span<const std::int32_t> keys) const;

 private:
  void store(Index page, std::span<const float> box);
  void quantise(std::span<float> box) const;
  Index d_head_;
  Index page_size_;
  int bits_;
  Index n_keys_ = 0;
  std::vector<float> open_box_;  // exact corners of the last page while it is not full
  std::vector<float> boxes_;     // [n_pages, 2 * d_head]
};

}  // namespace kvscope
