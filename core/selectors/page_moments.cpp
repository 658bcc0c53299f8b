#include "core/selectors/page_moments.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace kvscope {

PageMoments::PageMoments(Index d_head, Index page_size) : d_head_(d_head), page_size_(page_size) {
  assert(page_size >= 1);
}

void PageMoments::Moments::clear(Index d_head) {
  count = 0;
  mean.assign(static_cast<std::size_t>(d_head), 0.0);
  squares.assign(static_cast<std::size_t>(d_head), 0.0);
}

void PageMoments::Moments::include(std::span<const float> key) {
  ++count;
  const double share = 1.0 / static_cast<double>(count);
  double* const centre = mean.data();
  double* const spread = squares.data();
  for (std::size_t c = 0; c < key.size(); ++c) {
    const double x = static_cast<double>(key[c]);
    const double before = x - centre[c];
    centre[c] += before * share;
    spread[c] += before * (x - centre[c]);
  }
}

void PageMoments::Moments::store(std::span<float> row) const {
  const std::size_t d = mean.size();
  const double share = 1.0 / static_cast<double>(count);
  for (std::size_t c = 0; c < d; ++c) row[c] = static_cast<float>(mean[c]);
  for (std::size_t c = 0; c < d; ++c)
    row[d + c] = static_cast<float>(std::sqrt(std::max(0.0, squares[c] * share)));
}

void PageMoments::append_up_to(TensorView<const float> k) {
  const Index n_pages = (k.dim(0) + page_size_ - 1) / page_size_;
  const auto width = static_cast<std::size_t>(2 * d_head_);
  const auto needed = static_cast<std::size_t>(n_pages) * width;
  if (rows_.size() < needed) rows_.resize(needed);
  for (; n_keys_ < k.dim(0); ++n_keys_) {
    if (n_keys_ % page_size_ == 0) open_.clear(d_head_);
    open_.include(k.row(n_keys_));
    const bool is_last_of_page = (n_keys_ + 1) % page_size_ == 0 || n_keys_ + 1 == k.dim(0);
    if (is_last_of_page)
      open_.store(
          std::span(rows_).subspan(static_cast<std::size_t>(n_keys_ / page_size_) * width, width));
  }
}

void PageMoments::truncate(Index n_keys) {
  if (n_keys >= n_keys_) return;
  n_keys_ = std::max<Index>(n_keys, 0) / page_size_ * page_size_;
}

void PageMoments::add_doubled(std::span<const float> q, double a, std::span<double> sum) {
  for (std::size_t c = 0; c < q.size(); ++c) {
    const double x = static_cast<double>(q[c]);
    sum[c] += x;
    sum[q.size() + c] += a * std::abs(x);
  }
}

double PageMoments::score_of_keys(std::span<const double> doubled_query, TensorView<const float> k,
                                  std::span<const std::int32_t> keys) const {
  Moments moments;
  moments.clear(d_head_);
  for (const std::int32_t pos : keys) moments.include(k.row(pos));
  std::vector<float> row(static_cast<std::size_t>(2 * d_head_));
  moments.store(row);
  double score = 0.0;
  for (std::size_t c = 0; c < row.size(); ++c)
    score += doubled_query[c] * static_cast<double>(row[c]);
  return score;
}

}  // namespace kvscope
