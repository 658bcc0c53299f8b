// Mean and deviation of every page of one KV head's keys, channel by channel, which grow with the
// cache: the statistics of the selector unique, a row per page, so that scores of all pages are
// products of a query with rows.
//
// The score sum_c (q_c mean_c + a |q_c| deviation_c) is the dot product of (q, a |q|) with (mean,
// deviation). It is linear in that doubled query, so scores of several queries are summed by
// summing doubled queries. With a box's centre and half width in place of mean and deviation, and a
// = 1, it is Quest's bound (core/selectors/page_table.hpp); with the moments it bounds nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor/tensor.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

class PageMoments {
 public:
  /// page_size >= 1.
  PageMoments(Index d_head, Index page_size);

  /// Takes the keys from n_keys() on. k [n_ctx, d_head] from position 0. Every key is merged alone
  /// and in order (Welford's update, which is Chan's merge with a part of one key), so the bits do
  /// not depend on how the keys came.
  void append_up_to(TensorView<const float> k);
  /// Forgets positions >= n_keys. A page cut in two is made again by the next append_up_to: exact,
  /// where taking keys out of a sum of squares would cancel.
  void truncate(Index n_keys);

  Index n_keys() const { return n_keys_; }
  Index page_size() const { return page_size_; }
  Index n_pages() const { return (n_keys_ + page_size_ - 1) / page_size_; }
  /// (mean, deviation) of every page; the deviation is that of the page's keys themselves (divided
  /// by their number: 0 for a single key). [n_pages, 2 * d_head]
  TensorView<const float> rows() const { return {rows_.data(), {n_pages(), 2 * d_head_}}; }

  /// sum += (q, a |q|). q [d_head], sum [2 * d_head]
  static void add_doubled(std::span<const float> q, double a, std::span<double> sum);
  /// The score of a page that holds only these keys (positions in k), which must not be empty.
  double score_of_keys(std::span<const double> doubled_query, TensorView<const float> k,
                       std::span<const std::int32_t> keys) const;

 private:
  /// Running moments of one page.
  struct Moments {
    Index count = 0;
    std::vector<double> mean;     // [d_head]
    std::vector<double> squares;  // [d_head] sums of squared differences to the mean
    void clear(Index d_head);
    void include(std::span<const float> key);
    void store(std::span<float> row) const;  // [2 * d_head]
  };
  Index d_head_;
  Index page_size_;
  Index n_keys_ = 0;
  Moments open_;             // of the last page while it is not full
  std::vector<float> rows_;  // [n_pages, 2 * d_head]
};

}  // namespace kvscope
