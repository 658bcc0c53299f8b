#include "core/tensor/soft_cap_kernel.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/tensor/soft_cap_kernel.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>
// must come after foreach_target
#include <hwy/contrib/math/math-inl.h>

#include <algorithm>

#include "core/tensor/lane_tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kvscope {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Calls step(x + i) for whole vectors; the last, shorter part goes through a vector of its own.
template <class T, class Step>
HWY_INLINE void ForAll(T* x, std::size_t n, const Step& step) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) step(x + i);
  if (i == n) return;
  HWY_ALIGN T rest[HWY_MAX_BYTES / sizeof(T)] = {};
  std::copy(x + i, x + n, rest);
  step(rest);
  std::copy_n(rest, n - i, x + i);
}

void CapDoubles(double* x, std::size_t n, double cap) {
  ForAll(x, n, [&](double* at) {
    const hn::ScalableTag<double> d;
    // tanh is 1 to the last bit beyond 20, and Tanh is not defined far out.
    const auto share = hn::Mul(hn::LoadU(d, at), hn::Set(d, 1.0 / cap));
    const auto near = hn::Max(hn::Min(share, hn::Set(d, 20.0)), hn::Set(d, -20.0));
    hn::StoreU(hn::Mul(hn::Set(d, cap), hn::Tanh(d, near)), d, at);
  });
}

void CapFloats(float* x, std::size_t n, float cap) {
  ForAll(x, n, [&](float* at) { hn::StoreU(SoftCap(hn::LoadU(D(), at), cap), D(), at); });
}

}  // namespace HWY_NAMESPACE
}  // namespace kvscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvscope {
HWY_EXPORT(CapDoubles);
HWY_EXPORT(CapFloats);

void soft_cap(std::span<double> x, double cap) {
  if (cap > 0.0) HWY_DYNAMIC_DISPATCH(CapDoubles)(x.data(), x.size(), cap);
}
void soft_cap(std::span<float> x, float cap) {
  if (cap > 0.0f) HWY_DYNAMIC_DISPATCH(CapFloats)(x.data(), x.size(), cap);
}

}  // namespace kvscope
#endif  // HWY_ONCE
