#include "core/attention/score_kernels.hpp"

#include <algorithm>

#include "core/tensor/lane_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/attention/score_kernels.cpp"
#include <hwy/foreach_target.h>
// must follow foreach_target.h
#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvscope::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

constexpr int kKeysAtOnce = 4;

/// Products of kRows queries [kRows, width] with kKeys keys side by side, along the channels.
template <int kRows, int kKeys>
HWY_INLINE void FewDots(const float* q, Index width, const float* k, Index stride, double* out,
                        Index out_stride) {
  const D d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  V sum[kRows][kKeys];
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kKeys; ++i) sum[r][i] = hn::Zero(d);
  }
  Index c = 0;
  for (; c + lanes <= width; c += lanes) {
    V key[kKeys];
    for (int i = 0; i < kKeys; ++i) key[i] = hn::LoadU(d, k + i * stride + c);
    for (int r = 0; r < kRows; ++r) {
      const V x = hn::LoadU(d, q + r * width + c);
      for (int i = 0; i < kKeys; ++i) sum[r][i] = hn::MulAdd(x, key[i], sum[r][i]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kKeys; ++i) {
      float total = hn::GetLane(hn::SumOfLanes(d, sum[r][i]));
      for (Index rest = c; rest < width; ++rest)
        total += q[r * width + rest] * k[i * stride + rest];
      out[r * out_stride + i] = static_cast<double>(total);
    }
  }
}

template <int kRows>
HWY_INLINE void FewRows(const float* q, const float* k, Index stride, Index n_keys, Index width,
                        double* out, Index out_stride) {
  Index t = 0;
  for (; t + kKeysAtOnce <= n_keys; t += kKeysAtOnce) {
    FewDots<kRows, kKeysAtOnce>(q, width, k + t * stride, stride, out + t, out_stride);
  }
  for (; t < n_keys; ++t) FewDots<kRows, 1>(q, width, k + t * stride, stride, out + t, out_stride);
}

void KeyDotsFew(const float* q, Index n_rows, const float* k, Index stride, Index n_keys,
                Index width, double* out, Index out_stride) {
  switch (n_rows) {
    case 1:
      return FewRows<1>(q, k, stride, n_keys, width, out, out_stride);
    case 2:
      return FewRows<2>(q, k, stride, n_keys, width, out, out_stride);
    case 3:
      return FewRows<3>(q, k, stride, n_keys, width, out, out_stride);
    default:
      return FewRows<4>(q, k, stride, n_keys, width, out, out_stride);
  }
}

/// out[t] = the largest of products[t * lanes ...], or of that and out[t].
void LargestOfLanes(const float* products, Index n_keys, Index lanes, bool joins, double* out) {
  const D d;
  const auto step = static_cast<Index>(hn::Lanes(d));
  for (Index t = 0; t < n_keys; ++t) {
    V largest = hn::LoadU(d, products + t * lanes);
    for (Index j = step; j < lanes; j += step)
      largest = hn::Max(largest, hn::LoadU(d, products + t * lanes + j));
    const auto value = static_cast<double>(hn::GetLane(hn::MaxOfLanes(d, largest)));
    out[t] = joins && out[t] > value ? out[t] : value;
  }
}

/// kRows queries against one block, two vectors of keys at a time. sums [kRows, kColumnKeys].
template <int kRows>
HWY_INLINE void DotsOfColumns(const float* q, const Index* channels, Index n_channels,
                              const float* block, float* sums) {
  const hn::CappedTag<float, 16> d;
  using Keys = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (Index t = 0; t < kColumnKeys; t += 2 * lanes) {
    Keys low[kRows];
    Keys high[kRows];
    for (int r = 0; r < kRows; ++r) low[r] = high[r] = hn::Zero(d);
    for (Index i = 0; i < n_channels; ++i) {
      const float* column = block + channels[i] * kColumnKeys + t;
      const Keys k_low = hn::LoadU(d, column);
      const Keys k_high = hn::LoadU(d, column + lanes);
      for (int r = 0; r < kRows; ++r) {
        const Keys x = hn::Set(d, q[r * n_channels + i]);
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

/// kKeys keys side by side, along the channels.
template <int kKeys>
HWY_INLINE void DotsOfCodes(const float* q, const std::uint8_t* codes, const std::int32_t* keys,
                            Index d_head, double* out) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> whole;
  const hn::Rebind<std::uint8_t, decltype(d)> narrow;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  hn::Vec<decltype(d)> sum[kKeys];
  for (int i = 0; i < kKeys; ++i) sum[i] = hn::Zero(d);
  Index c = 0;
  for (; c + lanes <= d_head; c += lanes) {
    const auto x = hn::LoadU(d, q + c);
    for (int i = 0; i < kKeys; ++i) {
      const auto code = hn::PromoteTo(whole, hn::LoadU(narrow, codes + keys[i] * d_head + c));
      sum[i] = hn::MulAdd(x, hn::ConvertTo(d, code), sum[i]);
    }
  }
  for (int i = 0; i < kKeys; ++i) {
    float total = hn::GetLane(hn::SumOfLanes(d, sum[i]));
    for (Index rest = c; rest < d_head; ++rest)
      total += q[rest] * static_cast<float>(codes[keys[i] * d_head + rest]);
    out[i] = static_cast<double>(total);
  }
}

void CodeDots(const float* q, const std::uint8_t* codes, const std::int32_t* keys, Index n_keys,
              Index d_head, double* out) {
  Index t = 0;
  for (; t + 4 <= n_keys; t += 4) DotsOfCodes<4>(q, codes, keys + t, d_head, out + t);
  for (; t < n_keys; ++t) DotsOfCodes<1>(q, codes, keys + t, d_head, out + t);
}

FloatRange RangeOf(const float* x, std::size_t n) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  FloatRange range{x[0], x[0]};
  std::size_t i = 0;
  if (n >= lanes) {
    auto low = hn::LoadU(d, x);
    auto high = low;
    for (; i + lanes <= n; i += lanes) {
      const auto v = hn::LoadU(d, x + i);
      low = hn::Min(low, v);
      high = hn::Max(high, v);
    }
    range = {hn::GetLane(hn::MinOfLanes(d, low)), hn::GetLane(hn::MaxOfLanes(d, high))};
  }
  for (; i < n; ++i)
    range = {x[i] < range.low ? x[i] : range.low, x[i] > range.high ? x[i] : range.high};
  return range;
}

void RoundToCodes(const float* x, std::size_t n, double low, double inverse_step,
                  std::uint8_t* codes) {
  const hn::CappedTag<double, 8> d;
  const hn::Rebind<float, decltype(d)> narrow;
  const hn::Rebind<std::int32_t, decltype(d)> whole;
  const std::size_t lanes = hn::Lanes(d);
  HWY_ALIGN std::int32_t buffer[8];
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto place = hn::Mul(hn::Sub(hn::PromoteTo(d, hn::LoadU(narrow, x + i)), hn::Set(d, low)),
                               hn::Set(d, inverse_step));
    hn::Store(hn::DemoteTo(whole, hn::Add(place, hn::Set(d, 0.5))), whole, buffer);
    for (std::size_t j = 0; j < lanes; ++j) codes[i + j] = static_cast<std::uint8_t>(buffer[j]);
  }
  for (; i < n; ++i)
    codes[i] = static_cast<std::uint8_t>((static_cast<double>(x[i]) - low) * inverse_step + 0.5);
}

}  // namespace kvscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvscope {

HWY_EXPORT(KeyDotsFew);
HWY_EXPORT(LargestOfLanes);
HWY_EXPORT(CodeDots);
HWY_EXPORT(RangeOf);
HWY_EXPORT(RoundToCodes);
HWY_EXPORT(ColumnDots);

namespace {

// Up to here a vector runs along the channels, above along the queries.
constexpr Index kFewQueries = 4;
constexpr Index kBlockOfKeys = 32;  // their products stay in the first-level cache
constexpr Index kLineFloats = 16;   // of a cache line

/// Asks for rows [begin, end) of k: tiles of the product read several rows side by side, which the
/// processor does not foresee beyond the page of memory that it is in.
void ask_for_rows(TensorView<const float> k, Index begin, Index end) {
  for (Index t = begin; t < end; ++t) {
    for (Index c = 0; c < k.dim(1); c += kLineFloats) hwy::Prefetch(&k(t, c));
  }
}

/// Calls visit(first_row, n, lanes, first_key, n_keys, products [n_keys, lanes]) for lanes of rows
/// and blocks of keys. Lanes without a row repeat the first one of their group.
template <class Visit>
void for_each_block(std::span<const float> q, Index n_rows, TensorView<const float> k,
                    std::vector<float>& scratch, const Visit& visit) {
  const Index d = k.dim(1);
  const Index n_keys = k.dim(0);
  scratch.resize(static_cast<std::size_t>((d + kBlockOfKeys) * kWideLanes));
  float* q_lanes = scratch.data();
  float* products = q_lanes + d * kWideLanes;
  for (Index first = 0; first < n_rows;) {
    const Index lanes = n_rows - first > kNarrowLanes ? kWideLanes : kNarrowLanes;
    const Index n = std::min(lanes, n_rows - first);
    for (Index lane = 0; lane < lanes; ++lane) {
      const float* row = q.data() + (first + (lane < n ? lane : 0)) * d;
      for (Index c = 0; c < d; ++c) q_lanes[c * lanes + lane] = row[c];
    }
    for (Index t = 0; t < n_keys; t += kBlockOfKeys) {
      const Index n_block = std::min(kBlockOfKeys, n_keys - t);
      ask_for_rows(k, t + n_block, std::min(n_keys, t + n_block + kBlockOfKeys));
      lane_matmul(&k(t, Index{0}), k.stride(0), n_block, d, nullptr, q_lanes, products, lanes);
      visit(first, n, lanes, t, n_block, products);
    }
    first += n;
  }
}

}  // namespace

void key_dots_f32(std::span<const float> q, Index n_rows, TensorView<const float> k,
                  std::vector<float>& scratch, double* out, Index out_stride) {
  if (n_rows == 0 || k.dim(0) == 0) return;
  if (n_rows <= kFewQueries) {
    HWY_DYNAMIC_DISPATCH(KeyDotsFew)
    (q.data(), n_rows, k.data(), k.stride(0), k.dim(0), k.dim(1), out, out_stride);
    return;
  }
  for_each_block(
      q, n_rows, k, scratch,
      [&](Index first, Index n, Index lanes, Index key, Index n_keys, const float* products) {
        for (Index r = 0; r < n; ++r) {
          double* row = out + (first + r) * out_stride + key;
          for (Index t = 0; t < n_keys; ++t) row[t] = static_cast<double>(products[t * lanes + r]);
        }
      });
}

void largest_key_dots_f32(std::span<const float> q, Index n_rows, TensorView<const float> k,
                          std::vector<float>& scratch, std::span<double> out) {
  if (k.dim(0) == 0) return;
  for_each_block(
      q, n_rows, k, scratch,
      [&](Index first, Index, Index lanes, Index key, Index n_keys, const float* products) {
        HWY_DYNAMIC_DISPATCH(LargestOfLanes)(products, n_keys, lanes, first > 0, out.data() + key);
      });
}

void column_dots(std::span<const float> q, Index n_rows, std::span<const Index> channels,
                 const float* blocks, Index width, Index n_keys, double* out, Index out_stride) {
  HWY_DYNAMIC_DISPATCH(ColumnDots)
  (q.data(), n_rows, channels.data(), static_cast<Index>(channels.size()), blocks, width, n_keys,
   out, out_stride);
}

FloatRange range_of(std::span<const float> x) {
  return HWY_DYNAMIC_DISPATCH(RangeOf)(x.data(), x.size());
}

void round_to_codes(std::span<const float> x, double low, double inverse_step,
                    std::uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(RoundToCodes)(x.data(), x.size(), low, inverse_step, codes);
}

void code_dots(std::span<const float> q, const std::uint8_t* codes,
               std::span<const std::int32_t> keys, std::span<double> out) {
  HWY_DYNAMIC_DISPATCH(CodeDots)
  (q.data(), codes, keys.data(), static_cast<Index>(keys.size()), static_cast<Index>(q.size()),
   out.data());
}

}  // namespace kvscope
#endif  // HWY_ONCE
