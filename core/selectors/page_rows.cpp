#include "core/selectors/page_rows.hpp"

#include <cmath>
#include <limits>

namespace kvscope {

namespace {

constexpr int kExactBits = 16;

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

PageBox::PageBox(int bits) : bits_(bits) {
  assert(bits >= 1 && bits <= kExactBits);
}

void PageBox::clear(Index d_head) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  corners_.assign(static_cast<std::size_t>(2 * d_head), -kInfinity);
  std::fill(corners_.begin() + d_head, corners_.end(), kInfinity);
}

void PageBox::include(std::span<const float> key) {
  const std::size_t d = key.size();
  float* high = corners_.data();
  float* low = high + d;
  for (std::size_t c = 0; c < d; ++c) high[c] = std::max(high[c], key[c]);
  for (std::size_t c = 0; c < d; ++c) low[c] = std::min(low[c], key[c]);
}

void PageBox::store(std::span<float> row) const {
  std::copy(corners_.begin(), corners_.end(), row.begin());
  if (bits_ >= kExactBits) return;
  quantise_corner(row.first(row.size() / 2), bits_);
  quantise_corner(row.last(row.size() / 2), bits_);
}

void PageBox::add_doubled(std::span<const float> q, std::span<double> sum) {
  for (std::size_t c = 0; c < q.size(); ++c) {
    sum[c] += static_cast<double>(std::max(q[c], 0.0f));
    sum[q.size() + c] += static_cast<double>(std::min(q[c], 0.0f));
  }
}

void PageMoments::clear(Index d_head) {
  count_ = 0;
  mean_.assign(static_cast<std::size_t>(d_head), 0.0);
  squares_.assign(static_cast<std::size_t>(d_head), 0.0);
}

void PageMoments::include(std::span<const float> key) {
  ++count_;
  const double share = 1.0 / static_cast<double>(count_);
  double* const centre = mean_.data();
  double* const spread = squares_.data();
  for (std::size_t c = 0; c < key.size(); ++c) {
    const double x = static_cast<double>(key[c]);
    const double before = x - centre[c];
    centre[c] += before * share;
    spread[c] += before * (x - centre[c]);
  }
}

void PageMoments::store(std::span<float> row) const {
  const std::size_t d = mean_.size();
  const double share = 1.0 / static_cast<double>(count_);
  for (std::size_t c = 0; c < d; ++c) row[c] = static_cast<float>(mean_[c]);
  for (std::size_t c = 0; c < d; ++c)
    row[d + c] = static_cast<float>(std::sqrt(std::max(0.0, squares_[c] * share)));
}

void PageMoments::add_doubled(std::span<const float> q, double a, std::span<double> sum) {
  for (std::size_t c = 0; c < q.size(); ++c) {
    const double x = static_cast<double>(q[c]);
    sum[c] += x;
    sum[q.size() + c] += a * std::abs(x);
  }
}

}  // namespace kvscope
