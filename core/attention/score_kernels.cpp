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

}  // namespace kvscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvscope {

HWY_EXPORT(KeyDotsFew);
HWY_EXPORT(LargestOfLanes);

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

}  // namespace kvscope
#endif  // HWY_ONCE
