#include "core/selectors/key_dots.hpp"

#include <hwy/cache_control.h>
#include <algorithm>
#include <cassert>

#include "core/attention/key_kernels.hpp"
#include "core/attention/row_kernels.hpp"
#include "core/attention/score_kernels.hpp"

namespace kvscope {

namespace {

constexpr Index kBlockKeys = 16 * kPanelKeys;
constexpr std::size_t kKeysAhead = 8;
constexpr Index kLineFloats = 16;  // of a cache line
constexpr Index kFewRows = 2;      // up to here a transposed block costs more than it saves

}  // namespace

void KeyDots::compute(std::span<const double> q, Index n_rows, TensorView<const float> k,
                      TokenRange range) {
  const Index width = k.dim(1);
  assert(range.begin >= 0 && range.end <= k.dim(0));
  assert(static_cast<Index>(q.size()) == n_rows * width);
  n_keys_ = std::max<Index>(range.size(), 0);
  stride_ = (n_keys_ + kPanelKeys - 1) / kPanelKeys * kPanelKeys;
  const auto needed = static_cast<std::size_t>(n_rows * stride_);
  if (dots_.size() < needed) dots_.resize(needed);
  if (n_keys_ == 0) return;
  const TensorView<const float> keys = k.range(0, range.begin, range.end);
  if (precision_ == ScorePrecision::f32) {
    q_f32_.assign(q.begin(), q.end());
    key_dots_f32(q_f32_, n_rows, keys, block_, dots_.data(), stride_);
    return;
  }
  if (n_rows <= kFewRows) {
    key_dots(q, n_rows, keys, dots_.data(), stride_);
    return;
  }
  panels_.assign(static_cast<std::size_t>(kBlockKeys * width), 0.0);
  for (Index first = 0; first < n_keys_; first += kBlockKeys) {
    const Index n_block = std::min(kBlockKeys, n_keys_ - first);
    const Index n_panels = (n_block + kPanelKeys - 1) / kPanelKeys;
    for (Index t = 0; t < n_block; ++t) {
      const auto key = keys.row(first + t);
      double* out = panels_.data() + (t / kPanelKeys) * width * kPanelKeys + t % kPanelKeys;
      for (Index c = 0; c < width; ++c)
        out[c * kPanelKeys] = static_cast<double>(key[static_cast<std::size_t>(c)]);
    }
    panel_dots(q.data(), n_rows, panels_.data(), n_panels, width, dots_.data() + first, stride_);
  }
}

std::span<double> KeyDots::take(Index n_rows, Index n_keys) {
  n_keys_ = stride_ = n_keys;
  const auto needed = static_cast<std::size_t>(n_rows * n_keys);
  if (dots_.size() < needed) dots_.resize(needed);
  return std::span(dots_).first(needed);
}

void KeyDots::compute_listed(std::span<const double> q, TensorView<const float> k,
                             std::span<const std::int32_t> keys) {
  assert(static_cast<Index>(q.size()) == k.dim(1));
  n_keys_ = stride_ = static_cast<Index>(keys.size());
  if (dots_.size() < keys.size()) dots_.resize(keys.size());
  if (precision_ == ScorePrecision::f32) q_f32_.assign(q.begin(), q.end());
  for (std::size_t first = 0; first < keys.size();) {
    std::size_t end = first + 1;
    while (end < keys.size() && keys[end] == keys[end - 1] + 1) ++end;
    if (const std::size_t ahead = end + kKeysAhead;
        ahead < keys.size()) {  // scattered keys: the processor foresees none
      for (Index c = 0; c < k.dim(1); c += kLineFloats) hwy::Prefetch(&k(keys[ahead], c));
    }
    const TensorView<const float> run = k.range(0, keys[first], keys[end - 1] + 1);
    if (precision_ == ScorePrecision::f32) {
      key_dots_f32(q_f32_, 1, run, block_, dots_.data() + first, /*out_stride=*/0);
    } else {
      key_dots(q, 1, run, dots_.data() + first, /*out_stride=*/0);
    }
    first = end;
  }
}

void KeyDots::compute_largest(std::span<const double> q, Index n_rows, TensorView<const float> k,
                              TokenRange range, std::span<const Index> row_end, double none,
                              std::span<double> out) {
  const bool sees_all =
      std::all_of(row_end.begin(), row_end.end(), [&](Index end) { return end >= range.end; });
  if (precision_ == ScorePrecision::f32 && sees_all && n_rows > 0) {
    q_f32_.assign(q.begin(), q.end());
    if (n_rows == 1) {  // decode: no lanes to fill with queries
      key_dots_f32(q_f32_, 1, k.range(0, range.begin, range.end), block_, out.data(),
                   /*out_stride=*/0);
      return;
    }
    largest_key_dots_f32(q_f32_, n_rows, k.range(0, range.begin, range.end), block_, out);
    return;
  }
  compute(q, n_rows, k, range);
  std::fill(out.begin(), out.end(), none);
  for (Index r = 0; r < n_rows; ++r) {
    const Index end = std::min(range.end, row_end[static_cast<std::size_t>(r)]);
    const std::span<double> products = row(r);
    for (std::size_t t = 0; t < static_cast<std::size_t>(std::max<Index>(end - range.begin, 0));
         ++t) {
      out[t] = std::max(out[t], products[t]);
    }
  }
}

}  // namespace kvscope
