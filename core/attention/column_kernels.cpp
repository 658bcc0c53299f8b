#include "core/attention/column_kernels.hpp"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/attention/column_kernels.cpp"
#include <hwy/foreach_target.h>
// must follow foreach_target.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvscope::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// kRows queries against one block, two vectors of keys at a time. sums [kRows, kColumnKeys].
template <int kRows>
HWY_INLINE void DotsOfColumns(const float* q, const Index* channels, Index n_channels,
                              const float* block, float* sums) {
  const hn::CappedTag<float, 16> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (Index t = 0; t < kColumnKeys; t += 2 * lanes) {
    V low[kRows];
    V high[kRows];
    for (int r = 0; r < kRows; ++r) low[r] = high[r] = hn::Zero(d);
    for (Index i = 0; i < n_channels; ++i) {
      const float* column = block + channels[i] * kColumnKeys + t;
      const V k_low = hn::LoadU(d, column);
      const V k_high = hn::LoadU(d, column + lanes);
      for (int r = 0; r < kRows; ++r) {
        const V x = hn::Set(d, q[r * n_channels + i]);
        low[r] = hn::MulAdd(x, k_low, low[r]);
        high[r] = hn::MulAdd(x, k_high, high[r]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      hn::StoreU(low[r], d, sums + r * kColumnKeys + t);
      hn::StoreU(high[r], d, sums + r * kColumnKeys + t + lanes);
    }
  }
}

void ColumnDots(const float* q, Index n_rows, const Index* channels, Index n_channels,
                const float* blocks, Index width, Index n_keys, double* out, Index out_stride) {
  HWY_ALIGN float sums[4 * kColumnKeys];
  for (Index first = 0; first < n_keys; first += kColumnKeys) {
    const float* block = blocks + first * width;
    const Index n = std::min(kColumnKeys, n_keys - first);
    for (Index row = 0; row < n_rows; row += 4) {
      const float* queries = q + row * n_channels;
      switch (n_rows - row) {
        case 1:
          DotsOfColumns<1>(queries, channels, n_channels, block, sums);
          break;
        case 2:
          DotsOfColumns<2>(queries, channels, n_channels, block, sums);
          break;
        case 3:
          DotsOfColumns<3>(queries, channels, n_channels, block, sums);
          break;
        default:
          DotsOfColumns<4>(queries, channels, n_channels, block, sums);
          break;
      }
      for (Index r = 0; r < std::min<Index>(4, n_rows - row); ++r) {
        double* to = out + (row + r) * out_stride + first;
        for (Index t = 0; t < n; ++t) to[t] = static_cast<double>(sums[r * kColumnKeys + t]);
      }
    }
  }
}

}  // namespace kvscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvscope {

HWY_EXPORT(ColumnDots);

void column_dots(std::span<const float> q, Index n_rows, std::span<const Index> channels,
                 const float* blocks, Index width, Index n_keys, double* out, Index out_stride) {
  HWY_DYNAMIC_DISPATCH(ColumnDots)
  (q.data(), n_rows, channels.data(), static_cast<Index>(channels.size()), blocks, width, n_keys,
   out, out_stride);
}

}  // namespace kvscope
#endif  // HWY_ONCE
