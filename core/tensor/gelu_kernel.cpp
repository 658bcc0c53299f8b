#include "core/tensor/gelu_kernel.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/tensor/gelu_kernel.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>
// must come after foreach_target
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace kvscope {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void GeluGate(float* gate, const float* up, Index n) {
  const hn::ScalableTag<float> d;
  const Index step = static_cast<Index>(hn::Lanes(d));
  const auto one = hn::Set(d, 1.0f);
  for (Index i = 0; i < n; i += step) {
    const auto x = hn::LoadU(d, gate + i);
    const auto cubic = hn::MulAdd(hn::Mul(hn::Mul(x, x), x), hn::Set(d, 0.044715f), x);
    // (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)), u = 0.79788456 cubic
    const auto exponent = hn::Mul(cubic, hn::Set(d, -1.5957691216f));
    // Beyond 80 the gate is 0 or x to the last bit, and Exp is not defined far out.
    const auto e = hn::Exp(d, hn::Max(hn::Min(exponent, hn::Set(d, 80.0f)), hn::Set(d, -80.0f)));
    const auto gelu = hn::Div(x, hn::Add(one, e));
    hn::StoreU(hn::Mul(gelu, hn::LoadU(d, up + i)), d, gate + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvscope {
HWY_EXPORT(GeluGate);
void lane_gelu_gate(float* gate, const float* up, Index n) {
  HWY_DYNAMIC_DISPATCH(GeluGate)(gate, up, n);
}
}  // namespace kvscope
#endif  // HWY_ONCE
