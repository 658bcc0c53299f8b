#include "core/selectors/page_table.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "core/attention/row_kernels.hpp"

namespace kvscope {

namespace {

constexpr int kExactBits = 16;

std::vector<double> empty_box(Index d_head) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<double> box(static_cast<std::size_t>(2 * d_head), -kInfinity);
  std::fill(box.begin() + d_head, box.end(), kInfinity);
  return box;
}

void include_key(std::span<const float> key, std::span<double> box) {
  const std::size_t d = key.size();
  for (std::size_t c = 0; c < d; ++c) {
    const auto x = static_cast<double>(key[c]);
    box[c] = std::max(box[c], x);
    box[d + c] = std::min(box[d + c], x);
  }
}

/// Rounds to the nearest of 2^bits levels between the smallest and the largest element.
void quantise(std::span<double> x, int bits) {
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  const double base = *low;
  const double step = (*high - base) / static_cast<double>((1 << bits) - 1);
  if (step == 0.0) return;
  for (double& value : x) value = base + step * std::round((value - base) / step);
}

}  // namespace

PageTable::PageTable(Index d_head, Index page_size, int bits)
    : d_head_(d_head), page_size_(page_size), bits_(bits), open_box_(empty_box(d_head)) {
  assert(page_size >= 1 && bits >= 1 && bits <= kExactBits);
}

void PageTable::append_up_to(TensorView<const float> k) {
  for (; n_keys_ < k.dim(0); ++n_keys_) {
    if (n_keys_ % page_size_ == 0) open_box_ = empty_box(d_head_);
    include_key(k.row(n_keys_), open_box_);
    const bool is_last_of_page = (n_keys_ + 1) % page_size_ == 0 || n_keys_ + 1 == k.dim(0);
    if (is_last_of_page) store(n_keys_ / page_size_, quantised(open_box_));
  }
}

void PageTable::truncate(Index n_keys) {
  if (n_keys >= n_keys_) return;
  n_keys_ = std::max<Index>(n_keys, 0) / page_size_ * page_size_;
  open_box_ = empty_box(d_head_);
}

std::vector<double> PageTable::doubled(std::span<const float> q) {
  std::vector<double> out(2 * q.size());
  for (std::size_t c = 0; c < q.size(); ++c) {
    out[c] = std::max(static_cast<double>(q[c]), 0.0);
    out[q.size() + c] = std::min(static_cast<double>(q[c]), 0.0);
  }
  return out;
}

std::vector<double> PageTable::bounds(std::span<const double> doubled_query,
                                      TokenRange pages) const {
  assert(pages.begin >= 0 && pages.end <= n_pages());
  if (pages.size() <= 0) return {};
  const Index first_panel = pages.begin / kPanelKeys;
  const Index n_panels = (pages.end + kPanelKeys - 1) / kPanelKeys - first_panel;
  std::vector<double> out(static_cast<std::size_t>(n_panels * kPanelKeys));
  panel_dots(doubled_query.data(), 1, panels_.data() + first_panel * 2 * d_head_ * kPanelKeys,
             n_panels, 2 * d_head_, out.data(), n_panels * kPanelKeys);
  out.erase(out.begin(), out.begin() + pages.begin % kPanelKeys);
  out.resize(static_cast<std::size_t>(pages.size()));
  return out;
}

double PageTable::bound_of_keys(std::span<const double> doubled_query, TensorView<const float> k,
                                std::span<const std::int32_t> keys) const {
  std::vector<double> box = empty_box(d_head_);
  for (const std::int32_t pos : keys) include_key(k.row(pos), box);
  return dot_of(doubled_query, quantised(std::move(box)));
}

std::vector<double> PageTable::box(Index page) const {
  std::vector<double> out(static_cast<std::size_t>(2 * d_head_));
  const Index panel = page / kPanelKeys;
  for (Index c = 0; c < 2 * d_head_; ++c) {
    out[static_cast<std::size_t>(c)] = panels_[static_cast<std::size_t>(
        (panel * 2 * d_head_ + c) * kPanelKeys + page % kPanelKeys)];
  }
  return out;
}

void PageTable::store(Index page, std::span<const double> box) {
  const Index panel = page / kPanelKeys;
  const auto needed = static_cast<std::size_t>((panel + 1) * 2 * d_head_ * kPanelKeys);
  if (panels_.size() < needed) panels_.resize(needed, 0.0);
  for (Index c = 0; c < 2 * d_head_; ++c) {
    panels_[static_cast<std::size_t>((panel * 2 * d_head_ + c) * kPanelKeys + page % kPanelKeys)] =
        box[static_cast<std::size_t>(c)];
  }
}

std::vector<double> PageTable::quantised(std::vector<double> box) const {
  if (bits_ < kExactBits) {
    const auto d = static_cast<std::size_t>(d_head_);
    quantise(std::span(box).first(d), bits_);
    quantise(std::span(box).subspan(d), bits_);
  }
  return box;
}

}  // namespace kvscope
