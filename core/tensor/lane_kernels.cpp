#include "core/tensor/lane_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/tensor/lane_kernels.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>
// must come after foreach_target
#include <hwy/contrib/math/math-inl.h>

#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace kvscope {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
using DI = hn::RebindToSigned<D>;

// Accumulators of the register tile: kTileRows x 2 vectors. 32 vector registers hold 8 x 2 and operands, 16 hold 6 x 2.
#if HWY_TARGET <= HWY_AVX3
constexpr int kTileRows = 8;
#else
constexpr int kTileRows = 6;
#endif

// c[r] = (alpha * c[r]) + sum_k a[r * row_stride + k * k_stride] * b[k], for kRows rows and kVecs vectors of lanes.
enum class Init { kBias, kScaleOld };

template <int kRows, int kVecs, Init kInit>
HWY_INLINE void Tile(const float* HWY_RESTRICT a, Index row_stride, Index k_stride,
                     const float* HWY_RESTRICT b, Index lanes, Index k, const float* bias,
                     const float* HWY_RESTRICT alpha, float* HWY_RESTRICT c) {
  const D d;
  const Index n = static_cast<Index>(hn::Lanes(d));
  V acc[kRows][kVecs];
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kVecs; ++j) {
      acc[r][j] = (kInit == Init::kBias && bias != nullptr) ? hn::Set(d, bias[r]) : hn::Zero(d);
    }
  }
  for (Index i = 0; i < k; ++i) {
    V bv[kVecs];
    for (int j = 0; j < kVecs; ++j) bv[j] = hn::LoadU(d, b + i * lanes + j * n);
    for (int r = 0; r < kRows; ++r) {
      const V av = hn::Set(d, a[r * row_stride + i * k_stride]);
      for (int j = 0; j < kVecs; ++j) acc[r][j] = hn::MulAdd(av, bv[j], acc[r][j]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kVecs; ++j) {
      float* out = c + r * lanes + j * n;
      if constexpr (kInit == Init::kScaleOld) {
        const V scale = hn::LoadU(d, alpha + j * n);
        acc[r][j] = hn::MulAdd(hn::LoadU(d, out), scale, acc[r][j]);
      }
      hn::StoreU(acc[r][j], d, out);
    }
  }
}

template <int kVecs, Init kInit, int kRows = kTileRows>
HWY_INLINE void TileRest(Index rows, const float* a, Index row_stride, Index k_stride,
                         const float* b, Index lanes, Index k, const float* bias,
                         const float* alpha, float* c) {
  if constexpr (kRows > 0) {
    if (rows == kRows) {
      Tile<kRows, kVecs, kInit>(a, row_stride, k_stride, b, lanes, k, bias, alpha, c);
    } else {
      TileRest<kVecs, kInit, kRows - 1>(rows, a, row_stride, k_stride, b, lanes, k, bias, alpha, c);
    }
  }
}

template <int kVecs, Init kInit>
HWY_INLINE void Columns(const float* a, Index row_stride, Index k_stride, Index n_rows,
                        const float* b, Index lanes, Index k, const float* bias,
                        const float* alpha, float* c) {
  Index r = 0;
  for (; r + kTileRows <= n_rows; r += kTileRows) {
    Tile<kTileRows, kVecs, kInit>(a + r * row_stride, row_stride, k_stride, b, lanes, k,
                                  bias == nullptr ? nullptr : bias + r, alpha, c + r * lanes);
  }
  if (r < n_rows) {
    TileRest<kVecs, kInit>(n_rows - r, a + r * row_stride, row_stride, k_stride, b, lanes, k,
                           bias == nullptr ? nullptr : bias + r, alpha, c + r * lanes);
  }
}

// All lanes, two vectors at a time where there are two.
template <Init kInit>
HWY_INLINE void Product(const float* a, Index row_stride, Index k_stride, Index n_rows,
                        const float* b, Index lanes, Index k, const float* bias,
                        const float* alpha, float* c) {
  const Index n = static_cast<Index>(hn::Lanes(D()));
  Index j = 0;
  for (; j + 2 * n <= lanes; j += 2 * n) {
    Columns<2, kInit>(a, row_stride, k_stride, n_rows, b + j, lanes, k, bias,
                      alpha == nullptr ? nullptr : alpha + j, c + j);
  }
  for (; j + n <= lanes; j += n) {
    Columns<1, kInit>(a, row_stride, k_stride, n_rows, b + j, lanes, k, bias,
                      alpha == nullptr ? nullptr : alpha + j, c + j);
  }
}

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

void SwiGlu(float* gate, const float* up, Index n) {
  const D d;
  const Index step = static_cast<Index>(hn::Lanes(d));
  for (Index i = 0; i < n; i += step) {
    const V g = hn::LoadU(d, gate + i);
    const V sigmoid = hn::Div(hn::Set(d, 1.0f), hn::Add(hn::Set(d, 1.0f), hn::Exp(d, hn::Neg(g))));
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
      const V e = hn::Exp(d, hn::Neg(hn::Mul(hn::Set(d, alpha), g)));
      const V glu = hn::Mul(g, hn::Div(one, hn::Add(one, e)));
      hn::StoreU(hn::Mul(hn::Add(u, one), glu), d, out + f * lanes + j);
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

// exp(x) for x <= 0: relative error below 2e-7, exactly 1 at 0, 0 below -87 (and at -infinity and NaN).
// Half the instructions of the general exp, which matters here: one exp per score.
HWY_INLINE V ExpOfNegative(V x) {
  const D d;
  const DI di;
  const auto n = hn::NearestInt(hn::Mul(x, hn::Set(d, 1.442695041f)));  // x = n ln 2 + r
  const V nf = hn::ConvertTo(d, n);
  V r = hn::NegMulAdd(nf, hn::Set(d, 0.693145752f), x);  // ln 2 in two parts, the first exact in nf * part
  r = hn::NegMulAdd(nf, hn::Set(d, 1.42860677e-6f), r);
  V p = hn::Set(d, 1.0f / 5040.0f);  // Taylor series of e^r, |r| <= ln 2 / 2
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 720.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 120.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 24.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 6.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
  return hn::IfThenElseZero(hn::Ge(x, hn::Set(d, -87.0f)), hn::Mul(p, power));
}

// Sets scores of keys that a lane's query does not see to -infinity.
HWY_INLINE void MaskScores(const LaneAttention& t, Index key0, Index n_keys, float* scores) {
  const D d;
  const DI di;
  const Index step = static_cast<Index>(hn::Lanes(d));
  const V minus_inf = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (Index j = 0; j < t.lanes; j += step) {
    const auto pos = hn::LoadU(di, t.pos + j);
    for (Index i = 0; i < n_keys; ++i) {
      const auto key = hn::Set(di, static_cast<std::int32_t>(key0 + i));
      auto hidden = hn::Gt(key, pos);
      if (t.window > 0) {
        const auto oldest = hn::Sub(pos, hn::Set(di, static_cast<std::int32_t>(t.window - 1)));
        hidden = hn::Or(hidden, hn::Lt(key, oldest));
      }
      float* s = scores + i * t.lanes + j;
      hn::StoreU(hn::IfThenElse(hn::RebindMask(d, hidden), minus_inf, hn::LoadU(d, s)), d, s);
    }
  }
}

void Attention(const LaneAttention& t) {
  const D d;
  const Index step = static_cast<Index>(hn::Lanes(d));
  const Index lanes = t.lanes;
  float* scores = t.scratch;                      // [kKeyBlock, lanes], then probabilities
  float* max = t.scratch + kKeyBlock * lanes;     // [lanes] running maximum
  float* sum = max + lanes;                       // [lanes] running sum of exp(score - max)
  float* alpha = sum + lanes;                     // [lanes] factor for what was summed before
  const V minus_inf = hn::Set(d, -std::numeric_limits<float>::infinity());
  std::int32_t first_pos = t.pos[0];
  std::int32_t last_pos = t.pos[0];
  for (Index j = 0; j < lanes; ++j) {
    // A sink is a score that was seen before the first key, with exp(sink - max) = 1.
    max[j] = t.sinks != nullptr ? t.sinks[j] : -std::numeric_limits<float>::infinity();
    sum[j] = t.sinks != nullptr ? 1.0f : 0.0f;
    first_pos = t.pos[j] < first_pos ? t.pos[j] : first_pos;
    last_pos = t.pos[j] > last_pos ? t.pos[j] : last_pos;
  }
  for (Index i = 0; i < t.d_head * lanes; ++i) t.out[i] = 0.0f;

  for (Index key0 = t.key_begin; key0 < t.key_end; key0 += kKeyBlock) {
    const Index n_keys = t.key_end - key0 < kKeyBlock ? t.key_end - key0 : kKeyBlock;
    Product<Init::kBias>(t.k + key0 * t.d_head, t.d_head, 1, n_keys, t.q, lanes, t.d_head, nullptr,
                         nullptr, scores);
    const bool crosses_diagonal = key0 + n_keys - 1 > first_pos;
    const bool crosses_window = t.window > 0 && key0 <= last_pos - t.window;
    if (crosses_diagonal || crosses_window) MaskScores(t, key0, n_keys, scores);

    for (Index j = 0; j < lanes; j += step) {
      const V old_max = hn::LoadU(d, max + j);
      V new_max = old_max;
      for (Index i = 0; i < n_keys; ++i) {
        new_max = hn::Max(new_max, hn::LoadU(d, scores + i * lanes + j));
      }
      // A lane that has seen no key yet keeps max = -inf; subtracting it would make NaN.
      const V safe_max = hn::IfThenElse(hn::Eq(new_max, minus_inf), hn::Zero(d), new_max);
      const V factor = ExpOfNegative(hn::Sub(old_max, safe_max));
      V block_sum = hn::Zero(d);
      for (Index i = 0; i < n_keys; ++i) {
        float* s = scores + i * lanes + j;
        const V p = ExpOfNegative(hn::Sub(hn::LoadU(d, s), safe_max));
        block_sum = hn::Add(block_sum, p);
        hn::StoreU(p, d, s);
      }
      hn::StoreU(new_max, d, max + j);
      hn::StoreU(hn::MulAdd(hn::LoadU(d, sum + j), factor, block_sum), d, sum + j);
      hn::StoreU(factor, d, alpha + j);
    }
    Product<Init::kScaleOld>(t.v + key0 * t.d_head, 1, t.d_head, t.d_head, scores, lanes, n_keys,
                             nullptr, alpha, t.out);
  }

  for (Index j = 0; j < lanes; j += step) {
    const V inverse = hn::Div(hn::Set(d, 1.0f), hn::LoadU(d, sum + j));
    for (Index f = 0; f < t.d_head; ++f) {
      float* out = t.out + f * lanes + j;
      hn::StoreU(hn::Mul(hn::LoadU(d, out), inverse), d, out);
    }
  }
  for (Index j = 0; j < lanes; ++j) {
    t.lse[j] = static_cast<float>(static_cast<double>(max[j]) + std::log(static_cast<double>(sum[j])));
  }
}

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

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
HWY_EXPORT(Add);
HWY_EXPORT(Attention);
HWY_EXPORT(TargetName);

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
void lane_swiglu(float* gate, const float* up, Index n) { HWY_DYNAMIC_DISPATCH(SwiGlu)(gate, up, n); }
void lane_clamped_swiglu(const float* gate_up, Index n, float alpha, float limit, float* out,
                         Index lanes) {
  HWY_DYNAMIC_DISPATCH(ClampedSwiGlu)(gate_up, n, alpha, limit, out, lanes);
}
void lane_add(float* x, const float* y, Index n) { HWY_DYNAMIC_DISPATCH(Add)(x, y, n); }
void lane_attention(const LaneAttention& task) { HWY_DYNAMIC_DISPATCH(Attention)(task); }
const char* lane_target_name() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

void rows_from_lanes(const float* x, Index n_features, Index lanes, Index n_tok, float* rows,
                     Index row_stride) {
  constexpr Index kStep = 8;  // features per pass: reads stay in few cache lines, writes are runs of 8
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
