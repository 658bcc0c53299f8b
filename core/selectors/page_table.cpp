#include "core/selectors/page_table.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

namespace kvscope {

namespace {

constexpr int kExactBits = 16;

std::vector<float> empty_box(Index d_head) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> box(static_cast<std::size_t>(2 * d_head), -kInfinity);
  std::fill(box.begin() + d_head, box.end(), kInfinity);
  return box;
}

void include_key(std::span<const float> key, std::span<float> box) {
  const std::size_t d = key.size();
  float* high = box.data();
  float* low = high + d;
  for (std::size_t c = 0; c < d; ++c) high[c] = std::max(high[c], key[c]);
  for (std::size_t c = 0; c < d; ++c) low[c] = std::min(low[c], key[c]);
}

/// Rounds to the nearest of 2^bits levels between the smallest and the largest element.
void quantise_corner(std::span<float> x, int bits) {
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  const auto base = static_cast<double>(*low);
  const double step = (static_cast<double>(*high) - base) / static_cast<double>((1 << bits) - 1);
  if (step == 0.0) return;
  for (float& value : x) {
    value =
        static_cast<float>(base + step * std::round((static_cast<double>(value) - base) / step));
  }
}

}  // namespace

PageTable::PageTable(Index d_head, Index page_size, int bits)
    : d_head_(d_head), page_size_(page_size), bits_(bits), open_box_(empty_box(d_head)) {
  assert(page_size >= 1 && bits >= 1 && bits <= kExactBits);
}

void PageTable::append_up_to(TensorView<const float> k) {
  const Index n_pages = (k.dim(0) + page_size_ - 1) / page_size_;
  const auto needed = static_cast<std::size_t>(n_pages * 2 * d_head_);
  if (boxes_.size() < needed) boxes_.resize(needed);
  for (; n_keys_ < k.dim(0); ++n_keys_) {
    if (n_keys_ % page_size_ == 0) open_box_ = empty_box(d_head_);
    include_key(k.row(n_keys_), open_box_);
    const bool is_last_of_page = (n_keys_ + 1) % page_size_ == 0 || n_keys_ + 1 == k.dim(0);
    if (is_last_of_page) store(n_keys_ / page_size_, open_box_);
  }
}

void PageTable::truncate(Index n_keys) {
  if (n_keys >= n_keys_) return;
  n_keys_ = std::max<Index>(n_keys, 0) / page_size_ * page_size_;
  open_box_ = empty_box(d_head_);
}

void PageTable::add_doubled(std::span<const float> q, std::span<double> sum) {
  for (std::size_t c = 0; c < q.size(); ++c) {
    sum[c] += static_cast<double>(std::max(q[c], 0.0f));
    sum[q.size() + c] += static_cast<double>(std::min(q[c], 0.0f));
  }
}

double PageTable::bound_of_keys(std::span<const double> doubled_query, TensorView<const float> k,
                                std::span<const std::int32_t> keys) const {
  std::vector<float> box = empty_box(d_head_);
  for (const std::int32_t pos : keys) include_key(k.row(pos), box);
  quantise(box);
  double bound = 0.0;
  for (std::size_t c = 0; c < box.size(); ++c)
    bound += doubled_query[c] * static_cast<double>(box[c]);
  return bound;
}

void PageTable::store(Index page, std::span<const float> box) {
  const auto row =
      std::span(boxes_).subspan(static_cast<std::size_t>(page * 2 * d_head_), box.size());
  std::copy(box.begin(), box.end(), row.begin());
  quantise(row);
}

void PageTable::quantise(std::span<float> box) const {
  if (bits_ >= kExactBits) return;
  const auto d = static_cast<std::size_t>(d_head_);
  quantise_corner(box.first(d), bits_);
  quantise_corner(box.subspan(d), bits_);
}

}  // namespace kvscope
