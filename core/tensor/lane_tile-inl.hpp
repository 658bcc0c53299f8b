// Highway code that the attention and product kernels share: the register tile and the exponential.
#if defined(KVSCOPE_CORE_TENSOR_LANE_TILE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef KVSCOPE_CORE_TENSOR_LANE_TILE_INL
#undef KVSCOPE_CORE_TENSOR_LANE_TILE_INL
#else
#define KVSCOPE_CORE_TENSOR_LANE_TILE_INL
#endif

#include <hwy/highway.h>

#include <limits>

#include "core/tensor/tensor.hpp"

HWY_BEFORE_NAMESPACE();
namespace kvscope {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
using DI = hn::RebindToSigned<D>;

// Accumulators of the register tile: kTileRows x 2 vectors. 32 vector registers hold 8 x 2 and
// operands, 16 hold 6 x 2.
#if HWY_TARGET <= HWY_AVX3
constexpr int kTileRows = 8;
#else
constexpr int kTileRows = 6;
#endif

// c[r] = (alpha * c[r]) + sum_k a[r * row_stride + k * k_stride] * b[k], for kRows rows and kVecs
// vectors of lanes.
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
                        const float* b, Index lanes, Index k, const float* bias, const float* alpha,
                        float* c) {
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
                        const float* b, Index lanes, Index k, const float* bias, const float* alpha,
                        float* c) {
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

// exp(x) for x up to 80, most often <= 0: relative error below 2e-7, exactly 1 at 0, 0 below -87
// (and at -infinity and NaN). Half the instructions of the general exp, which matters here: one
// exp per score.
HWY_INLINE V ExpOfNegative(V x) {
  const D d;
  const DI di;
  const auto n = hn::NearestInt(hn::Mul(x, hn::Set(d, 1.442695041f)));  // x = n ln 2 + r
  const V nf = hn::ConvertTo(d, n);
  // ln 2 in two parts, the first exact in nf * part
  V r = hn::NegMulAdd(nf, hn::Set(d, 0.693145752f), x);
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

// cap * tanh(x / cap), off by a few units in the last place of the result; NaN where x is infinite.
HWY_INLINE V SoftCap(V x, float cap) {
  const D d;
  const V u = hn::Mul(x, hn::Set(d, 1.0f / cap));
  const V size = hn::Abs(u);
  const V one = hn::Set(d, 1.0f);
  const V e = ExpOfNegative(hn::Mul(size, hn::Set(d, -2.0f)));
  const V far = hn::CopySign(hn::Div(hn::Sub(one, e), hn::Add(one, e)), u);
  // Near 0 the difference above loses digits: Taylor's series of tanh.
  const V square = hn::Mul(u, u);
  V p = hn::Set(d, 62.0f / 2835.0f);
  p = hn::MulAdd(p, square, hn::Set(d, -17.0f / 315.0f));
  p = hn::MulAdd(p, square, hn::Set(d, 2.0f / 15.0f));
  p = hn::MulAdd(p, square, hn::Set(d, -1.0f / 3.0f));
  p = hn::MulAdd(p, square, one);
  const V near = hn::Mul(u, p);
  return hn::Mul(hn::Set(d, cap), hn::IfThenElse(hn::Lt(size, hn::Set(d, 0.3f)), near, far));
}

// How two parts of one softmax are joined: of keys before, and of the keys after them.
template <class Tag>
struct JoinFactors {
  using Vec = hn::Vec<Tag>;
  Vec max, before, after;
  HWY_INLINE JoinFactors(Tag d, Vec max_before, Vec max_after) {
    max = hn::Max(max_before, max_after);
    const Vec minus_inf = hn::Set(d, -std::numeric_limits<float>::infinity());
    const Vec safe_max = hn::IfThenElse(hn::Eq(max, minus_inf), hn::Zero(d), max);
    before = ExpOfNegative(hn::Sub(max_before, safe_max));
    after = ExpOfNegative(hn::Sub(max_after, safe_max));
  }
  HWY_INLINE Vec Join(Vec x_before, Vec x_after) const {
    return hn::MulAdd(x_after, after, hn::Mul(x_before, before));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace kvscope
HWY_AFTER_NAMESPACE();

#endif  // once per target
