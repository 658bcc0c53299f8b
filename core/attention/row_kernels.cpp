#include "core/attention/row_kernels.hpp"

#include <algorithm>
#include <cassert>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/attention/row_kernels.cpp"
#include <hwy/foreach_target.h>
// must follow foreach_target.h
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvscope::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<double, 8>;
using V = hn::Vec<D>;

/// The next vector of a row that has n elements left; an incomplete one is filled up with `fill`.
HWY_INLINE V load_next(D d, const double* x, std::size_t n, double fill) {
  if (n >= hn::Lanes(d)) return hn::LoadU(d, x);
  HWY_ALIGN double buffer[8];
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) buffer[i] = i < n ? x[i] : fill;
  return hn::Load(d, buffer);
}

HWY_INLINE void store_next(D d, V v, double* x, std::size_t n) {
  if (n >= hn::Lanes(d)) return hn::StoreU(v, d, x);
  HWY_ALIGN double buffer[8];
  hn::Store(v, d, buffer);
  for (std::size_t i = 0; i < n; ++i) x[i] = buffer[i];
}

/// R query rows against one panel; two vectors of keys at a time keep 2 R accumulators in
/// registers.
template <int R>
HWY_INLINE void dots_of_panel(const double* q, const double* panel, Index d_head, double* out,
                              Index out_stride) {
  const D d;
  const Index step = 2 * static_cast<Index>(hn::Lanes(d));
  const Index half = step / 2;
  for (Index t = 0; t < kPanelKeys; t += step) {
    V low[R];
    V high[R];
    for (int r = 0; r < R; ++r) low[r] = high[r] = hn::Zero(d);
    for (Index c = 0; c < d_head; ++c) {
      const V k_low = hn::LoadU(d, panel + c * kPanelKeys + t);
      const V k_high = hn::LoadU(d, panel + c * kPanelKeys + t + half);
      for (int r = 0; r < R; ++r) {
        const V x = hn::Set(d, q[r * d_head + c]);
        low[r] = hn::MulAdd(x, k_low, low[r]);
        high[r] = hn::MulAdd(x, k_high, high[r]);
      }
    }
    for (int r = 0; r < R; ++r) {
      hn::StoreU(low[r], d, out + r * out_stride + t);
      hn::StoreU(high[r], d, out + r * out_stride + t + half);
    }
  }
}

void panel_dots(const double* q, Index n_rows, const double* panels, Index n_panels, Index d_head,
                double* out, Index out_stride) {
  constexpr Index kBlockRows = 32;  // queries that stay in the nearest cache with a panel
  for (Index first = 0; first < n_rows; first += kBlockRows) {
    const Index end = std::min(n_rows, first + kBlockRows);
    for (Index p = 0; p < n_panels; ++p) {
      const double* panel = panels + p * d_head * kPanelKeys;
      double* column = out + p * kPanelKeys;
      Index r = first;
      for (; HWY_CAP_GE512 && r + 8 <= end;
           r += 8) {  // smaller vectors have half as many registers
        dots_of_panel<8>(q + r * d_head, panel, d_head, column + r * out_stride, out_stride);
      }
      for (; r + 4 <= end; r += 4) {
        dots_of_panel<4>(q + r * d_head, panel, d_head, column + r * out_stride, out_stride);
      }
      for (; r < end; ++r) {
        dots_of_panel<1>(q + r * d_head, panel, d_head, column + r * out_stride, out_stride);
      }
    }
  }
}

double max_of(const double* x, std::size_t n) {
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  const double lowest = -std::numeric_limits<double>::infinity();
  V best = hn::Set(d, lowest);
  for (std::size_t i = 0; i < n; i += lanes)
    best = hn::Max(best, load_next(d, x + i, n - i, lowest));
  return hn::GetLane(hn::MaxOfLanes(d, best));
}

double sum_of(const double* x, std::size_t n) {
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  V sum = hn::Zero(d);
  for (std::size_t i = 0; i < n; i += lanes) sum = hn::Add(sum, load_next(d, x + i, n - i, 0.0));
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

double dot_of(const double* a, const double* b, std::size_t n) {
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  V sum = hn::Zero(d);
  for (std::size_t i = 0; i < n; i += lanes)
    sum = hn::MulAdd(load_next(d, a + i, n - i, 0.0), load_next(d, b + i, n - i, 0.0), sum);
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

double l1_distance(const double* a, const double* b, std::size_t n) {
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  V sum = hn::Zero(d);
  for (std::size_t i = 0; i < n; i += lanes) {
    const V gap = hn::Sub(load_next(d, a + i, n - i, 0.0), load_next(d, b + i, n - i, 0.0));
    sum = hn::Add(sum, hn::Abs(gap));
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

/// exp(x) of one vector: below -708 the result is 0, so that -infinity and subnormal results are
/// safe.
HWY_INLINE V exp_of(D d, V x) {
  const V lowest = hn::Set(d, -708.0);
  const V e = hn::Exp(d, hn::Max(x, lowest));
  return hn::IfThenZeroElse(hn::Lt(x, lowest), e);
}

template <bool kStore>
HWY_INLINE ExpSums exp_loop(const double* x, double shift, double* out, std::size_t n) {
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  const V offset = hn::Set(d, shift);
  const V lowest = hn::Set(d, -708.0);
  V sum = hn::Zero(d);
  V weighted = hn::Zero(d);
  for (std::size_t i = 0; i < n; i += lanes) {
    const V raw = load_next(d, x + i, n - i, -std::numeric_limits<double>::infinity());
    const V centred = hn::Sub(raw, offset);
    const V e = exp_of(d, centred);
    sum = hn::Add(sum, e);
    weighted = hn::MulAdd(e, hn::Max(centred, lowest), weighted);
    if constexpr (kStore) store_next(d, e, out + i, n - i);
  }
  return {hn::GetLane(hn::SumOfLanes(d, sum)), hn::GetLane(hn::SumOfLanes(d, weighted))};
}

ExpSums exp_sums(const double* x, double shift, std::size_t n) {
  return exp_loop<false>(x, shift, nullptr, n);
}

ExpSums exp_row(const double* x, double shift, double* out, std::size_t n) {
  return exp_loop<true>(x, shift, out, n);
}

void add_scaled(const double* x, double factor, double* out, std::size_t n) {
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  const V f = hn::Set(d, factor);
  for (std::size_t i = 0; i < n; i += lanes) {
    const V y = hn::MulAdd(load_next(d, x + i, n - i, 0.0), f, load_next(d, out + i, n - i, 0.0));
    store_next(d, y, out + i, n - i);
  }
}

ScoreRange finite_range(const double* x, std::size_t n) {
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  const double infinity = std::numeric_limits<double>::infinity();
  const V nothing = hn::Set(d, -infinity);
  V low = hn::Set(d, infinity);
  V high = nothing;
  for (std::size_t i = 0; i < n; i += lanes) {
    const V v = load_next(d, x + i, n - i, -infinity);
    high = hn::Max(high, v);
    low = hn::Min(low, hn::IfThenElse(hn::Gt(v, nothing), v, hn::Set(d, infinity)));
  }
  return {hn::GetLane(hn::MinOfLanes(d, low)), hn::GetLane(hn::MaxOfLanes(d, high))};
}

void bucket_row(const double* x, std::size_t n, double low, double per_unit, std::int32_t* out) {
  const D d;
  const hn::Rebind<std::int32_t, D> narrow;
  const std::size_t lanes = hn::Lanes(d);
  const V base = hn::Set(d, low);
  const V factor = hn::Set(d, per_unit);
  const V one = hn::Set(d, 1.0);
  const V nothing = hn::Set(d, -std::numeric_limits<double>::infinity());
  HWY_ALIGN std::int32_t buffer[8];
  for (std::size_t i = 0; i < n; i += lanes) {
    const V v = load_next(d, x + i, n - i, low);
    const V place = hn::MulAdd(hn::Sub(v, base), factor, one);
    const auto bucket = hn::DemoteTo(narrow, hn::IfThenElseZero(hn::Gt(v, nothing), place));
    if (i + lanes <= n) {
      hn::StoreU(bucket, narrow, out + i);
    } else {
      hn::Store(bucket, narrow, buffer);
      for (std::size_t j = 0; j < n - i; ++j) out[i + j] = buffer[j];
    }
  }
}

void log_row(const double* x, double* out, std::size_t n) {
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  const V minus_infinity = hn::Set(d, -std::numeric_limits<double>::infinity());
  for (std::size_t i = 0; i < n; i += lanes) {
    const V v = load_next(d, x + i, n - i, 1.0);
    const auto positive = hn::Gt(v, hn::Zero(d));
    const V safe = hn::IfThenElse(positive, v, hn::Set(d, 1.0));
    store_next(d, hn::IfThenElse(positive, hn::Log(d, safe), minus_infinity), out + i, n - i);
  }
}

}  // namespace kvscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvscope {

// Tables of the versions for each instruction set; the best one is picked at the first call.
HWY_EXPORT(panel_dots);
HWY_EXPORT(max_of);
HWY_EXPORT(sum_of);
HWY_EXPORT(dot_of);
HWY_EXPORT(l1_distance);
HWY_EXPORT(exp_sums);
HWY_EXPORT(exp_row);
HWY_EXPORT(add_scaled);
HWY_EXPORT(log_row);
HWY_EXPORT(finite_range);
HWY_EXPORT(bucket_row);

void panel_dots(const double* q, Index n_rows, const double* panels, Index n_panels, Index d,
                double* out, Index out_stride) {
  HWY_DYNAMIC_DISPATCH(panel_dots)(q, n_rows, panels, n_panels, d, out, out_stride);
}

double max_of(std::span<const double> x) {
  return HWY_DYNAMIC_DISPATCH(max_of)(x.data(), x.size());
}

double sum_of(std::span<const double> x) {
  return HWY_DYNAMIC_DISPATCH(sum_of)(x.data(), x.size());
}

double dot_of(std::span<const double> a, std::span<const double> b) {
  assert(a.size() == b.size());
  return HWY_DYNAMIC_DISPATCH(dot_of)(a.data(), b.data(), a.size());
}

double l1_distance(std::span<const double> a, std::span<const double> b) {
  assert(a.size() == b.size());
  return HWY_DYNAMIC_DISPATCH(l1_distance)(a.data(), b.data(), a.size());
}

ExpSums exp_sums(std::span<const double> x, double shift) {
  return HWY_DYNAMIC_DISPATCH(exp_sums)(x.data(), shift, x.size());
}

ExpSums exp_row(std::span<const double> x, double shift, std::span<double> out) {
  assert(x.size() == out.size());
  return HWY_DYNAMIC_DISPATCH(exp_row)(x.data(), shift, out.data(), x.size());
}

void add_scaled(std::span<const double> x, double factor, std::span<double> out) {
  assert(x.size() == out.size());
  HWY_DYNAMIC_DISPATCH(add_scaled)(x.data(), factor, out.data(), x.size());
}

void log_row(std::span<const double> x, std::span<double> out) {
  assert(x.size() == out.size());
  HWY_DYNAMIC_DISPATCH(log_row)(x.data(), out.data(), x.size());
}

ScoreRange finite_range(std::span<const double> x) {
  return HWY_DYNAMIC_DISPATCH(finite_range)(x.data(), x.size());
}

void bucket_row(std::span<const double> x, double low, double per_unit, std::int32_t* out) {
  HWY_DYNAMIC_DISPATCH(bucket_row)(x.data(), x.size(), low, per_unit, out);
}

}  // namespace kvscope
#endif
