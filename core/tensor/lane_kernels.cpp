#include "core/tensor/lane_kernels.hpp"

#include <cmath>
#include <numbers>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/tensor/lane_kernels.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>
// must come after foreach_target
#include <hwy/contrib/math/math-inl.h>

#include "core/tensor/lane_tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kvscope {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void Matmul(const float* w, Index ldw, Index n_rows, Index k, const float* bias, const float* x,
            float* y, Index lanes) {
  Product<Init::kBias>(w, ldw, 1, n_rows, x, lanes, k, bias, nullptr, y);
}

void RmsNorm(const float* x, const float* weight, Index n, float eps, float* y, Index lanes) {
  const D d;
  const Index step = static_cast<Index>(hn::Lanes(d));
  for (Index j = 0; j < lanes; j += step) {
    // Four partial sums keep the rounding error of long rows small.
    V sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    for (Index f = 0; f < n; ++f) {
      const V value = hn::LoadU(d, x + f * lanes + j);
      sum[f & 3] = hn::MulAdd(value, value, sum[f & 3]);
    }
    const V total = hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]));
    const V mean = hn::Div(total, hn::Set(d, static_cast<float>(n)));
    const V scale = hn::Div(hn::Set(d, 1.0f), hn::Sqrt(hn::Add(mean, hn::Set(d, eps))));
    for (Index f = 0; f < n; ++f) {
      const V value = hn::LoadU(d, x + f * lanes + j);
      hn::StoreU(hn::Mul(hn::Mul(value, scale), hn::Set(d, weight[f])), d, y + f * lanes + j);
    }
  }
}

void Rope(float* x, const float* cos, const float* sin, Index d_head, Index lanes) {
  const D d;
  const Index step = static_cast<Index>(hn::Lanes(d));
  const Index half = d_head / 2;
  for (Index i = 0; i < half; ++i) {
    float* low = x + i * lanes;
    float* high = x + (i + half) * lanes;
    for (Index j = 0; j < lanes; j += step) {
      const V a = hn::LoadU(d, low + j);
      const V b = hn::LoadU(d, high + j);
      const V c = hn::LoadU(d, cos + i * lanes + j);
      const V s = hn::LoadU(d, sin + i * lanes + j);
      hn::StoreU(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), d, low + j);
      hn::StoreU(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), d, high + j);
    }
  }
}

// Of exp in a sigmoid: beyond it Highway's exp is not defined, and 1 / (1 + e^80) is 0.
constexpr float kMostExponent = 80.0f;

void SwiGlu(float* gate, const float* up, Index n) {
  const D d;
  const Index step = static_cast<Index>(hn::Lanes(d));
  for (Index i = 0; i < n; i += step) {
    const V g = hn::LoadU(d, gate + i);
    const V sigmoid = hn::Div(
        hn::Set(d, 1.0f),
        hn::Add(hn::Set(d, 1.0f), hn::Exp(d, hn::Min(hn::Neg(g), hn::Set(d, kMostExponent)))));
    hn::StoreU(hn::Mul(hn::Mul(g, sigmoid), hn::LoadU(d, up + i)), d, gate + i);
  }
}

void ClampedSwiGlu(const float* gate_up, Index n, float alpha, float limit, float* out,
                   Index lanes) {
  const D d;
  const Index step = static_cast<Index>(hn::Lanes(d));
  const V one = hn::Set(d, 1.0f);
  const V high = hn::Set(d, limit);
  const V low = hn::Set(d, -limit);
  for (Index f = 0; f < n; ++f) {
    const float* gate = gate_up + 2 * f * lanes;
    const float* up = gate + lanes;
    for (Index j = 0; j < lanes; j += step) {
      const V g = hn::Min(hn::LoadU(d, gate + j), high);
      const V u = hn::Min(hn::Max(hn::LoadU(d, up + j), low), high);
      const V e =
          hn::Exp(d, hn::Min(hn::Neg(hn::Mul(hn::Set(d, alpha), g)), hn::Set(d, kMostExponent)));
      const V glu = hn::Mul(g, hn::Div(one, hn::Add(one, e)));
      hn::StoreU(hn::Mul(hn::Add(u, one), glu), d, out + f * lanes + j);
    }
  }
}

void GeluGate(float* gate, const float* up, Index n) {
  const D d;
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

void Add(float* x, const float* y, Index n) {
  const D d;
  const Index step = static_cast<Index>(hn::Lanes(d));
  for (Index i = 0; i < n; i += step) {
    hn::StoreU(hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, x + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvscope {
HWY_EXPORT(Matmul);
HWY_EXPORT(RmsNorm);
HWY_EXPORT(Rope);
HWY_EXPORT(SwiGlu);
HWY_EXPORT(ClampedSwiGlu);
HWY_EXPORT(GeluGate);
HWY_EXPORT(LayerNorm);
HWY_EXPORT(Add);

void lane_matmul(const float* w, Index ldw, Index n_rows, Index k, const float* bias,
                 const float* x, float* y, Index lanes) {
  HWY_DYNAMIC_DISPATCH(Matmul)(w, ldw, n_rows, k, bias, x, y, lanes);
}
void lane_rms_norm(const float* x, const float* weight, Index n, float eps, float* y, Index lanes) {
  HWY_DYNAMIC_DISPATCH(RmsNorm)(x, weight, n, eps, y, lanes);
}
void lane_rope(float* x, const float* cos, const float* sin, Index d, Index lanes) {
  HWY_DYNAMIC_DISPATCH(Rope)(x, cos, sin, d, lanes);
}
void lane_swiglu(float* gate, const float* up, Index n) {
  HWY_DYNAMIC_DISPATCH(SwiGlu)(gate, up, n);
}
void lane_clamped_swiglu(const float* gate_up, Index n, float alpha, float limit, float* out,
                         Index lanes) {
  HWY_DYNAMIC_DISPATCH(ClampedSwiGlu)(gate_up, n, alpha, limit, out, lanes);
}
void lane_gelu_gate(float* gate, const float* up, Index n) {
  HWY_DYNAMIC_DISPATCH(GeluGate)(gate, up, n);
}
void lane_layer_norm(const float* x, const float* weight, const float* bias, Index n, float eps,
                     float* y, Index lanes) {
  HWY_DYNAMIC_DISPATCH(LayerNorm)(x, weight, bias, n, eps, y, lanes);
}
void lane_gelu(float* x, Index n) {
  constexpr float kHalfRoot = std::numbers::sqrt2_v<float> / 2.0f;
  for (Index i = 0; i < n; ++i) x[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * kHalfRoot));
}
void lane_add(float* x, const float* y, Index n) {
  HWY_DYNAMIC_DISPATCH(Add)(x, y, n);
}

void rows_from_lanes(const float* x, Index n_features, Index lanes, Index n_tok, float* rows,
                     Index row_stride) {
  // Features per pass: reads stay in few cache lines, writes are runs of 8.
  constexpr Index kStep = 8;
  for (Index f0 = 0; f0 < n_features; f0 += kStep) {
    const Index f1 = f0 + kStep < n_features ? f0 + kStep : n_features;
    for (Index t = 0; t < n_tok; ++t) {
      for (Index f = f0; f < f1; ++f) rows[t * row_stride + f] = x[f * lanes + t];
    }
  }
}

void lanes_from_rows(const float* rows, Index row_stride, Index n_features, Index lanes,
                     Index n_tok, float scale, float* x) {
  for (Index f = 0; f < n_features; ++f) {
    for (Index t = 0; t < n_tok; ++t) x[f * lanes + t] = scale * rows[t * row_stride + f];
    for (Index t = n_tok; t < lanes; ++t) x[f * lanes + t] = 0.0f;
  }
}

}  // namespace kvscope
#endif  // HWY_ONCE
