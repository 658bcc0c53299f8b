// What every page of one KV head's keys is like, in a row per page that grows with the cache, so
// that scores of all pages are products of a query with rows. A score is linear in a doubled query
// [2 * d_head]: scores of several queries are summed by summing doubled queries first.
#pragma once

#include <algorithm>
#include <cassert>
#include <span>
#include <vector>

#include "core/tensor/tensor.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// A page's box, (high, low): Quest's metadata. The bound sum_c max(q_c low_c, q_c high_c) takes
/// high where q_c >= 0 and low elsewhere: the product of (max(q, 0), min(q, 0)) with the row.
class PageBox {
 public:
  /// bits: 16 keeps boxes as they are; fewer quantise each corner to 2^bits levels between its own
  /// smallest and largest channel.
  PageBox(int bits = 16);
  void clear(Index d_head);
  void include(std::span<const float> key);
  void store(std::span<float> row) const;
  /// sum += (max(q, 0), min(q, 0)). q [d_head], sum [2 * d_head]
  static void add_doubled(std::span<const float> q, std::span<double> sum);
  /// Below 1: tells apart tables of one page size.
  double tag() const { return bits_ / 64.0; }

 private:
  int bits_;
  std::vector<float> corners_;  // [2 * d_head]
};

/// (mean, deviation) of a page's keys, channel by channel: the statistics of the selector unique,
/// whose score sum_c (q_c mean_c + a |q_c| deviation_c) is the product of (q, a |q|) with the row.
/// The deviation is that of the keys themselves (divided by their number: 0 for a single key). Keys
/// are merged alone and in order (Welford's update), so the bits do not depend on how they came.
class PageMoments {
 public:
  void clear(Index d_head);
  void include(std::span<const float> key);
  void store(std::span<float> row) const;
  /// sum += (q, a |q|). q [d_head], sum [2 * d_head]
  static void add_doubled(std::span<const float> q, double a, std::span<double> sum);
  double tag() const { return 0.0; }

 private:
  Index count_ = 0;
  std::vector<double> mean_;     // [d_head]
  std::vector<double> squares_;  // [d_head] sums of squared differences to the mean
};

/// Statistic: PageBox or PageMoments.
template <class Statistic>
class PageRows {
 public:
  /// page_size >= 1.
  PageRows(Index d_head, Index page_size, Statistic empty = {})
      : width_(static_cast<std::size_t>(2 * d_head)), page_size_(page_size), open_(empty) {
    assert(page_size >= 1);
  }

  /// Takes the keys from n_keys() on. k [n_ctx, d_head] from position 0.
  void append_up_to(TensorView<const float> k) {
    const std::size_t needed = width_ * static_cast<std::size_t>(pages_of(k.dim(0)));
    if (rows_.size() < needed) rows_.resize(needed);
    for (; n_keys_ < k.dim(0); ++n_keys_) {
      if (n_keys_ % page_size_ == 0) open_.clear(k.dim(1));
      open_.include(k.row(n_keys_));
      const bool is_last_of_page = (n_keys_ + 1) % page_size_ == 0 || n_keys_ + 1 == k.dim(0);
      if (!is_last_of_page) continue;
      const auto page = static_cast<std::size_t>(n_keys_ / page_size_);
      open_.store(std::span(rows_).subspan(page * width_, width_));
    }
  }
  /// Forgets positions >= n_keys. A page cut in two is made again by the next append_up_to: neither
  /// a minimum nor a sum of squares can be undone.
  void truncate(Index n_keys) {
    if (n_keys >= n_keys_) return;
    n_keys_ = std::max<Index>(n_keys, 0) / page_size_ * page_size_;
  }

  Index n_pages() const { return pages_of(n_keys_); }
  /// [n_pages, 2 * d_head]
  TensorView<const float> rows() const {
    return {rows_.data(), {n_pages(), static_cast<Index>(width_)}};
  }
  /// The score of a page that holds only these keys (positions in k), which must not be empty.
  double score_of_keys(std::span<const double> doubled_query, TensorView<const float> k,
                       std::span<const std::int32_t> keys) const {
    Statistic page = open_;
    page.clear(k.dim(1));
    for (const std::int32_t pos : keys) page.include(k.row(pos));
    std::vector<float> row(width_);
    page.store(row);
    double score = 0.0;
    for (std::size_t c = 0; c < width_; ++c)
      score += doubled_query[c] * static_cast<double>(row[c]);
    return score;
  }

 private:
  Index pages_of(Index n_keys) const { return (n_keys + page_size_ - 1) / page_size_; }

  std::size_t width_;
  Index page_size_;
  Index n_keys_ = 0;
  Statistic open_;           // of the last page while it is not full
  std::vector<float> rows_;  // [n_pages, 2 * d_head]
};

using PageTable = PageRows<PageBox>;

}  // namespace kvscope
