#include "core/tensor/layer_norm_kernel.hpp"

#include <cmath>
#include <numbers>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/tensor/layer_norm_kernel.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
// must come after foreach_target
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvscope {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void LayerNorm(const float* x, const float* weight, const float* bias, Index n, float eps, float* y,
               Index lanes) {
  const hn::CappedTag<float, 16> d;
  const Index step = static_cast<Index>(hn::Lanes(d));
  const auto share = hn::Set(d, 1.0f / static_cast<float>(n));
  const auto one = hn::Set(d, 1.0f);
  for (Index lane = 0; lane < lanes; lane += step) {
    auto sum = hn::Zero(d);
    for (Index f = 0; f < n; ++f) sum = hn::Add(sum, hn::LoadU(d, x + f * lanes + lane));
    const auto mean = hn::Mul(sum, share);
    auto squares = hn::Zero(d);
    for (Index f = 0; f < n; ++f) {
      const auto centred = hn::Sub(hn::LoadU(d, x + f * lanes + lane), mean);
      squares = hn::MulAdd(centred, centred, squares);
    }
    const auto scale = hn::Div(one, hn::Sqrt(hn::MulAdd(squares, share, hn::Set(d, eps))));
    for (Index f = 0; f < n; ++f) {
      const auto unit = hn::Mul(hn::Sub(hn::LoadU(d, x + f * lanes + lane), mean), scale);
      hn::StoreU(hn::MulAdd(unit, hn::Set(d, weight[f]), hn::Set(d, bias[f])), d,
                 y + f * lanes + lane);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvscope {
HWY_EXPORT(LayerNorm);
void lane_layer_norm(const float* x, const float* weight, const float* bias, Index n, float eps,
                     float* y, Index lanes) {
  HWY_DYNAMIC_DISPATCH(LayerNorm)(x, weight, bias, n, eps, y, lanes);
}

void lane_gelu(float* x, Index n) {
  constexpr float kHalfRoot = std::numbers::sqrt2_v<float> / 2.0f;
  for (Index i = 0; i < n; ++i) x[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * kHalfRoot));
}
}  // namespace kvscope
#endif  // HWY_ONCE
