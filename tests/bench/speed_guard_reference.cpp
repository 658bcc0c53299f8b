// Plain vector work with which speed_guard compares the program's. It shares no code with the
// kernels under guard, and is chosen for the same vector target at run time, so that a ratio
// means the same on a faster machine.
#include <cstddef>
#include <vector>

#include "tests/bench/speed_guard.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bench/speed_guard_reference.cpp"
#include <hwy/foreach_target.h>
// must follow foreach_target.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvscope::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kRows = 6;  // of a tile, with two vectors: what 16 registers hold
constexpr int kDepth = 128;

/// Tiles of a [kRows, kDepth] times b [kDepth, two vectors], all in the first-level cache.
template <class T>
HWY_INLINE T Products(double n) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const std::size_t lanes = hn::Lanes(d);
  std::vector<T> a(kRows * kDepth), b(kDepth * 2 * lanes), c(2 * lanes);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<T>(i % 7) - T{3};
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<T>(i % 5) - T{2};
  const auto n_tiles = static_cast<std::size_t>(n / static_cast<double>(kRows * b.size())) + 1;
  for (std::size_t tile = 0; tile < n_tiles; ++tile) {
    V acc[kRows][2];
    for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = hn::Zero(d);
    for (std::size_t i = 0; i < kDepth; ++i) {
      const V low = hn::LoadU(d, b.data() + 2 * i * lanes);
      const V high = hn::LoadU(d, b.data() + (2 * i + 1) * lanes);
      for (int r = 0; r < kRows; ++r) {
        const V x = hn::Set(d, a[static_cast<std::size_t>(r) * kDepth + i]);
        acc[r][0] = hn::MulAdd(x, low, acc[r][0]);
        acc[r][1] = hn::MulAdd(x, high, acc[r][1]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      hn::StoreU(hn::Add(hn::LoadU(d, c.data()), acc[r][0]), d, c.data());
      hn::StoreU(hn::Add(hn::LoadU(d, c.data() + lanes), acc[r][1]), d, c.data() + lanes);
    }
    a[tile % a.size()] += c[0] * T{1e-9};  // each tile depends on the one before
  }
  T sum{};
  for (const T x : c) sum += x;
  return sum;
}

float F32Products(double n) {
  return Products<float>(n);
}

double F64Products(double n) {
  return Products<double>(n);
}

float RowProducts(const float* q, std::ptrdiff_t n_q, const float* k, std::ptrdiff_t n,
                  std::ptrdiff_t width) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  float largest = 0.0F;
  for (std::ptrdiff_t t = 0; t < n; ++t) {
    for (std::ptrdiff_t first = 0; first < n_q; first += 4) {
      V sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
      for (std::ptrdiff_t c = 0; c < width; c += lanes) {
        const V key = hn::LoadU(d, k + t * width + c);
        for (std::ptrdiff_t i = 0; i < 4; ++i)
          sum[i] = hn::MulAdd(hn::LoadU(d, q + (first + i) * width + c), key, sum[i]);
      }
      for (const V& s : sum) {
        const float product = hn::GetLane(hn::SumOfLanes(d, s));
        largest = product > largest ? product : largest;
      }
    }
  }
  return largest;
}

}  // namespace kvscope::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvscope::bench {

HWY_EXPORT(F32Products);
HWY_EXPORT(F64Products);
HWY_EXPORT(RowProducts);

float f32_products(double n) {
  return HWY_DYNAMIC_DISPATCH(F32Products)(n);
}

double f64_products(double n) {
  return HWY_DYNAMIC_DISPATCH(F64Products)(n);
}

float row_products(const float* q, std::ptrdiff_t n_q, const float* k, std::ptrdiff_t n,
                   std::ptrdiff_t width) {
  return HWY_DYNAMIC_DISPATCH(RowProducts)(q, n_q, k, n, width);
}

}  // namespace kvscope::bench
#endif
