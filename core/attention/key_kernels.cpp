#include "core/attention/key_kernels.hpp"

#include <algorithm>
#include <cassert>

#ifndef KVSCOPE_KEY_KERNELS_ONCE
#define KVSCOPE_KEY_KERNELS_ONCE
namespace kvscope {
namespace {

/// The rows of a weighted sum: n of them, named by `keys` or (null) all in order; row i weighs
/// weights[i - first].
struct WeightedRows {
  const double* weights;
  Index first;
  const std::int32_t* keys;
  Index n;
  const float* v;
  Index stride;
  Index at(Index i) const { return keys != nullptr ? keys[i] : i; }
};

}  // namespace
}  // namespace kvscope
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/attention/key_kernels.cpp"
#include <hwy/foreach_target.h>
// must follow foreach_target.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvscope::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<double, 8>;
using V = hn::Vec<D>;

/// One query against N keys side by side, along the channels.
template <int N>
HWY_INLINE void dots_of_keys(const double* q, const float* k, Index stride, Index width,
                             double* out) {
  const D d;
  const hn::Rebind<float, D> narrow;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  V sum[N];
  for (int i = 0; i < N; ++i) sum[i] = hn::Zero(d);
  Index c = 0;
  for (; c + lanes <= width; c += lanes) {
    const V x = hn::LoadU(d, q + c);
    for (int i = 0; i < N; ++i) {
      sum[i] = hn::MulAdd(x, hn::PromoteTo(d, hn::LoadU(narrow, k + i * stride + c)), sum[i]);
    }
  }
  for (int i = 0; i < N; ++i) {
    double total = hn::GetLane(hn::SumOfLanes(d, sum[i]));
    for (Index rest = c; rest < width; ++rest)
      total += q[rest] * static_cast<double>(k[i * stride + rest]);
    out[i] = total;
  }
}

void key_dots(const double* q, Index n_rows, const float* k, Index stride, Index n_keys,
              Index width, double* out, Index out_stride) {
  Index t = 0;
  for (; t + 4 <= n_keys; t += 4) {
    for (Index r = 0; r < n_rows; ++r)
      dots_of_keys<4>(q + r * width, k + t * stride, stride, width, out + r * out_stride + t);
  }
  for (; t < n_keys; ++t) {
    for (Index r = 0; r < n_rows; ++r)
      dots_of_keys<1>(q + r * width, k + t * stride, stride, width, out + r * out_stride + t);
  }
}

void squared_norms(const float* k, Index stride, Index n_keys, Index width, double* out) {
  const D d;
  const hn::Rebind<float, D> narrow;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (Index t = 0; t < n_keys; ++t) {
    const float* key = k + t * stride;
    V sum = hn::Zero(d);
    Index c = 0;
    for (; c + lanes <= width; c += lanes) {
      const V x = hn::PromoteTo(d, hn::LoadU(narrow, key + c));
      sum = hn::MulAdd(x, x, sum);
    }
    out[t] = hn::GetLane(hn::SumOfLanes(d, sum));
    for (; c < width; ++c) out[t] += static_cast<double>(key[c]) * static_cast<double>(key[c]);
  }
}

/// N vectors of channels from channel c on stay in registers while the rows go by.
template <int N>
HWY_INLINE void add_rows_of_block(const WeightedRows& rows, Index c, double* out) {
  const D d;
  const hn::Rebind<float, D> narrow;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  V sum[N];
  for (int j = 0; j < N; ++j) sum[j] = hn::LoadU(d, out + c + j * lanes);
  for (Index i = 0; i < rows.n; ++i) {
    const Index at = rows.at(i);
    const V w = hn::Set(d, rows.weights[at - rows.first]);
    const float* row = rows.v + at * rows.stride + c;
    for (int j = 0; j < N; ++j) {
      sum[j] = hn::MulAdd(w, hn::PromoteTo(d, hn::LoadU(narrow, row + j * lanes)), sum[j]);
    }
  }
  for (int j = 0; j < N; ++j) hn::StoreU(sum[j], d, out + c + j * lanes);
}

/// The channels from c on that fill no vector.
HWY_INLINE void add_rows_of_rest(const WeightedRows& rows, Index c, Index width, double* out) {
  for (Index i = 0; i < rows.n && c < width; ++i) {
    const Index at = rows.at(i);
    const double w = rows.weights[at - rows.first];
    for (Index rest = c; rest < width; ++rest)
      out[rest] += w * static_cast<double>(rows.v[at * rows.stride + rest]);
  }
}

/// The sum of the weights, in four parts: every fourth one each.
HWY_INLINE double mass_of(const WeightedRows& rows) {
  double mass[4] = {0.0, 0.0, 0.0, 0.0};
  Index i = 0;
  for (; i + 4 <= rows.n; i += 4) {
    for (Index j = 0; j < 4; ++j) mass[j] += rows.weights[rows.at(i + j) - rows.first];
  }
  for (Index j = 0; i + j < rows.n; ++j) mass[j] += rows.weights[rows.at(i + j) - rows.first];
  return (mass[0] + mass[1]) + (mass[2] + mass[3]);
}

double add_weighted_rows(const WeightedRows& rows, Index width, double* out) {
  const auto lanes = static_cast<Index>(hn::Lanes(D()));
  Index c = 0;
  for (; c + 8 * lanes <= width; c += 8 * lanes) add_rows_of_block<8>(rows, c, out);
  for (; c + lanes <= width; c += lanes) add_rows_of_block<1>(rows, c, out);
  add_rows_of_rest(rows, c, width, out);
  return mass_of(rows);
}

/// R rows of weights for the same keys, each channel summed up as add_rows_of_block does: a value
/// that was read and widened serves all of them.
template <int R, int N>
HWY_INLINE void add_shared_rows_of_block(const WeightedRows& rows, const double* const* weights,
                                         Index c, double* const* out) {
  const D d;
  const hn::Rebind<float, D> narrow;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  V sum[R * N];
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < N; ++j) sum[r * N + j] = hn::LoadU(d, out[r] + c + j * lanes);
  }
  for (Index i = 0; i < rows.n; ++i) {
    const Index at = rows.at(i);
    const float* row = rows.v + at * rows.stride + c;
    V value[N];
    for (int j = 0; j < N; ++j) value[j] = hn::PromoteTo(d, hn::LoadU(narrow, row + j * lanes));
    for (int r = 0; r < R; ++r) {
      const V w = hn::Set(d, weights[r][at - rows.first]);
      for (int j = 0; j < N; ++j) sum[r * N + j] = hn::MulAdd(w, value[j], sum[r * N + j]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < N; ++j) hn::StoreU(sum[r * N + j], d, out[r] + c + j * lanes);
  }
}

template <int R>
HWY_INLINE void add_shared_rows(const WeightedRows& rows, const double* const* weights, Index width,
                                double* const* out, double* masses) {
  const auto lanes = static_cast<Index>(hn::Lanes(D()));
  Index c = 0;
  constexpr int kVectors = HWY_CAP_GE512 ? 4 : 2;  // as many as registers hold, times R
  for (; c + kVectors * lanes <= width; c += kVectors * lanes)
    add_shared_rows_of_block<R, kVectors>(rows, weights, c, out);
  for (; c + lanes <= width; c += lanes) add_shared_rows_of_block<R, 1>(rows, weights, c, out);
  for (int r = 0; r < R; ++r) {
    WeightedRows one = rows;
    one.weights = weights[r];
    add_rows_of_rest(one, c, width, out[r]);
    masses[r] = mass_of(one);
  }
}

void add_weighted_rows_shared(const WeightedRows& rows, const double* const* weights,
                              Index n_weights, Index width, double* const* out, double* masses) {
  Index r = 0;
  for (; r + 4 <= n_weights; r += 4)
    add_shared_rows<4>(rows, weights + r, width, out + r, masses + r);
  for (; r + 2 <= n_weights; r += 2)
    add_shared_rows<2>(rows, weights + r, width, out + r, masses + r);
  for (; r < n_weights; ++r) {
    WeightedRows one = rows;
    one.weights = weights[r];
    masses[r] = add_weighted_rows(one, width, out[r]);
  }
}

}  // namespace kvscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvscope {

// Tables of the versions for each instruction set; the best one is picked at the first call.
HWY_EXPORT(key_dots);
HWY_EXPORT(squared_norms);
HWY_EXPORT(add_weighted_rows);
HWY_EXPORT(add_weighted_rows_shared);

void key_dots(std::span<const double> q, Index n_rows, TensorView<const float> k, double* out,
              Index out_stride) {
  assert(static_cast<Index>(q.size()) == n_rows * k.dim(1));
  HWY_DYNAMIC_DISPATCH(key_dots)
  (q.data(), n_rows, k.data(), k.stride(0), k.dim(0), k.dim(1), out, out_stride);
}

void squared_norms(TensorView<const float> k, std::span<double> out) {
  assert(static_cast<Index>(out.size()) == k.dim(0));
  HWY_DYNAMIC_DISPATCH(squared_norms)(k.data(), k.stride(0), k.dim(0), k.dim(1), out.data());
}

double add_weighted_rows(std::span<const double> weights, Index first,
                         std::span<const std::int32_t> keys, TensorView<const float> v,
                         std::span<double> out) {
  const auto n = static_cast<Index>(keys.size());
  if (n == 0) return 0.0;
  return HWY_DYNAMIC_DISPATCH(add_weighted_rows)(
      {weights.data(), first, keys.data(), n, v.data(), v.stride(0)}, v.dim(1), out.data());
}

void add_weighted_rows(std::span<const double* const> weights, Index first,
                       std::span<const std::int32_t> keys, TensorView<const float> v,
                       std::span<double* const> out, std::span<double> masses) {
  assert(out.size() == weights.size() && masses.size() == weights.size());
  std::fill(masses.begin(), masses.end(), 0.0);
  const auto n = static_cast<Index>(keys.size());
  if (n == 0) return;
  HWY_DYNAMIC_DISPATCH(add_weighted_rows_shared)
  ({nullptr, first, keys.data(), n, v.data(), v.stride(0)}, weights.data(),
   static_cast<Index>(weights.size()), v.dim(1), out.data(), masses.data());
}

double add_weighted_rows(std::span<const double> weights, TensorView<const float> v,
                         std::span<double> out) {
  assert(static_cast<Index>(weights.size()) == v.dim(0));
  return HWY_DYNAMIC_DISPATCH(add_weighted_rows)(
      {weights.data(), 0, nullptr, v.dim(0), v.data(), v.stride(0)}, v.dim(1), out.data());
}

}  // namespace kvscope
#endif
