#include "core/tensor/row_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/tensor/row_kernels.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/tensor/attention_kernels.hpp"
#include "core/tensor/lane_tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kvscope {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DU = hn::RebindToUnsigned<D>;

// Rows of a matrix that lie one after another.
struct StridedRows {
  const float* first;
  Index stride;
  HWY_INLINE const float* operator()(Index i) const { return first + i * stride; }
  HWY_INLINE StridedRows From(Index i) const { return {first + i * stride, stride}; }
  HWY_INLINE void Prefetch(Index, Index, Index) const {}  // the processor sees it coming
};
// Rows of a matrix that a list names.
struct ListedRows {
  const float* matrix;
  Index stride;
  const std::int32_t* list;
  Index n;  // rows that may be asked for ahead
  HWY_INLINE const float* operator()(Index i) const { return matrix + list[i] * stride; }
  HWY_INLINE ListedRows From(Index i) const { return {matrix, stride, list + i, n - i}; }
  // The cache line of element c of rows [first, last), as far as there are such.
  HWY_INLINE void Prefetch(Index first, Index last, Index c) const {
    for (Index i = first; i < (last < n ? last : n); ++i) hwy::Prefetch((*this)(i) + c);
  }
};
constexpr Index kLineFloats = 16;  // of a cache line

#if HWY_TARGET == HWY_SCALAR || HWY_HAVE_SCALABLE
// column[j]: element c + j of every row, for four elements; lane = row.
template <class Rows>
HWY_INLINE void LoadColumns(const Rows& rows, Index c, V column[4]) {
  const D d;
  HWY_ALIGN float values[HWY_MAX_BYTES / sizeof(float)];
  for (Index j = 0; j < 4; ++j) {
    for (Index i = 0; i < static_cast<Index>(hn::Lanes(d)); ++i) values[i] = rows(i)[c + j];
    column[j] = hn::Load(d, values);
  }
}
#else
// Four floats from c on of each of rows r, r + 4, r + 8, ... in the 128-bit blocks of a vector.
template <class Rows>
HWY_INLINE V LoadBlocks(const Rows& rows, Index r, Index c) {
  const D d;
#if HWY_TARGET <= HWY_AVX3
  const V low =
      hn::OddEvenBlocks(hn::LoadDup128(d, rows(r + 4) + c), hn::LoadDup128(d, rows(r) + c));
  const V high =
      hn::OddEvenBlocks(hn::LoadDup128(d, rows(r + 12) + c), hn::LoadDup128(d, rows(r + 8) + c));
  return hn::ConcatUpperLower(d, high, low);
#elif HWY_TARGET <= HWY_AVX2
  return hn::ConcatUpperLower(d, hn::LoadDup128(d, rows(r + 4) + c),
                              hn::LoadDup128(d, rows(r) + c));
#else
  return hn::LoadU(d, rows(r) + c);
#endif
}

// column[j]: element c + j of every row, for four elements; lane = row.
template <class Rows>
HWY_INLINE void LoadColumns(const Rows& rows, Index c, V column[4]) {
  const D d;
  const hn::RepartitionToWide<DU> wide;
  const V r0 = LoadBlocks(rows, 0, c);
  const V r1 = LoadBlocks(rows, 1, c);
  const V r2 = LoadBlocks(rows, 2, c);
  const V r3 = LoadBlocks(rows, 3, c);
  const auto a = hn::BitCast(wide, hn::InterleaveLower(d, r0, r1));
  const auto b = hn::BitCast(wide, hn::InterleaveLower(d, r2, r3));
  const auto x = hn::BitCast(wide, hn::InterleaveUpper(d, r0, r1));
  const auto y = hn::BitCast(wide, hn::InterleaveUpper(d, r2, r3));
  column[0] = hn::BitCast(d, hn::InterleaveLower(wide, a, b));
  column[1] = hn::BitCast(d, hn::InterleaveUpper(wide, a, b));
  column[2] = hn::BitCast(d, hn::InterleaveLower(wide, x, y));
  column[3] = hn::BitCast(d, hn::InterleaveUpper(wide, x, y));
}
#endif

// How weights lie in memory: kPerFloat of them where a float would be.
struct F32Weights {
  using Stored = float;
  static constexpr Index kPerFloat = 1;
  static HWY_INLINE V Get(V column, Index) { return column; }
};
struct Bf16Weights {
  using Stored = std::uint16_t;
  static constexpr Index kPerFloat = 2;
  static HWY_INLINE V Get(V column, Index i) {
    const DU du;
    const auto bits = hn::BitCast(du, column);
    return hn::BitCast(D(),
                       i == 0 ? hn::ShiftLeft<16>(bits) : hn::And(bits, hn::Set(du, 0xffff0000u)));
  }
};

// kGroups vectors of rows at once, so that the chains of few tokens hide each other's latency.
template <class Weights, int kTokens, int kGroups>
HWY_INLINE void RowTile(const typename Weights::Stored* w, Index ldw, Index k, const float* bias,
                        const float* x, float* y, Index lanes) {
  const D d;
  const Index n = static_cast<Index>(hn::Lanes(d));
  const float* p = reinterpret_cast<const float*>(w);
  const Index stride = ldw / Weights::kPerFloat;
  V acc[kGroups][kTokens];
  for (int g = 0; g < kGroups; ++g) {
    for (int t = 0; t < kTokens; ++t) {
      acc[g][t] = bias != nullptr ? hn::LoadU(d, bias + g * n) : hn::Zero(d);
    }
  }
  for (Index i = 0; i < k; i += 4 * Weights::kPerFloat) {
    for (int g = 0; g < kGroups; ++g) {
      V column[4];
      LoadColumns(StridedRows{p + g * n * stride, stride}, i / Weights::kPerFloat, column);
      for (int j = 0; j < 4; ++j) {
        for (Index e = 0; e < Weights::kPerFloat; ++e) {
          const V value = Weights::Get(column[j], e);
          for (int t = 0; t < kTokens; ++t) {
            acc[g][t] =
                hn::MulAdd(value, hn::Set(d, x[t * k + i + j * Weights::kPerFloat + e]), acc[g][t]);
          }
        }
      }
    }
  }
  HWY_ALIGN float values[kTokens][HWY_MAX_BYTES / sizeof(float)];
  for (int g = 0; g < kGroups; ++g) {
    for (int t = 0; t < kTokens; ++t) hn::Store(acc[g][t], d, values[t]);
    for (Index r = 0; r < n; ++r) {
      float* out = y + (g * n + r) * lanes;
      for (Index t = kTokens; t < lanes; ++t) out[t] = 0.0f;
      for (int t = 0; t < kTokens; ++t) out[t] = values[t][r];
    }
  }
}

template <class Weights, int kTokens = 1>
void RowMatmul(const typename Weights::Stored* w, Index ldw, Index n_rows, Index k,
               const float* bias, const float* x, Index n_tok, float* y, Index lanes) {
  if constexpr (kTokens < kMaxRowTokens) {
    if (n_tok > kTokens) {
      return RowMatmul<Weights, kTokens + 1>(w, ldw, n_rows, k, bias, x, n_tok, y, lanes);
    }
  }
  const Index n = static_cast<Index>(hn::Lanes(D()));
  const auto bias_at = [&](Index r) { return bias == nullptr ? nullptr : bias + r; };
  Index r = 0;
  for (; r + 2 * n <= n_rows; r += 2 * n) {
    RowTile<Weights, kTokens, 2>(w + r * ldw, ldw, k, bias_at(r), x, y + r * lanes, lanes);
  }
  for (; r < n_rows; r += n) {
    const Index first = r + n <= n_rows ? r : n_rows - n;  // the last tile may repeat rows
    RowTile<Weights, kTokens, 1>(w + first * ldw, ldw, k, bias_at(first), x, y + first * lanes,
                                 lanes);
  }
}

void RowMatmulF32(const float* w, Index ldw, Index n_rows, Index k, const float* bias,
                  const float* x, Index n_tok, float* y, Index lanes) {
  RowMatmul<F32Weights>(w, ldw, n_rows, k, bias, x, n_tok, y, lanes);
}
void RowMatmulBf16(const std::uint16_t* w, Index ldw, Index n_rows, Index k, const float* bias,
                   const float* x, Index n_tok, float* y, Index lanes) {
  RowMatmul<Bf16Weights>(w, ldw, n_rows, k, bias, x, n_tok, y, lanes);
}
Index VectorFloats() {
  return static_cast<Index>(hn::Lanes(D()));
}

// Scores of one vector of keys by their first d_dot channels, lane = key. q [kRows, d_head];
// scores: row r at r * kKeyBlock.
template <int kRows, class Keys>
HWY_INLINE void ScoreTile(const Keys& k, Index d_dot, Index d_head, const float* q, float* scores) {
  const D d;
  const Index n = static_cast<Index>(hn::Lanes(d));
  V acc[kRows];
  for (int r = 0; r < kRows; ++r) acc[r] = hn::Zero(d);
  Index f = 0;
  for (; f + 4 <= d_dot; f += 4) {
    if (f % kLineFloats == 0) k.Prefetch(n, 2 * n, f);
    V column[4];
    LoadColumns(k, f, column);
    for (int j = 0; j < 4; ++j) {
      for (int r = 0; r < kRows; ++r) {
        acc[r] = hn::MulAdd(column[j], hn::Set(d, q[r * d_head + f + j]), acc[r]);
      }
    }
  }
  for (; f < d_dot; ++f) {
    HWY_ALIGN float column[HWY_MAX_BYTES / sizeof(float)];
    for (Index i = 0; i < n; ++i) column[i] = k(i)[f];
    const V value = hn::Load(d, column);
    for (int r = 0; r < kRows; ++r) {
      acc[r] = hn::MulAdd(value, hn::Set(d, q[r * d_head + f]), acc[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) hn::StoreU(acc[r], d, scores + r * kKeyBlock);
}

// Caps the scores of n_keys keys; a key's addend, where the task has such, joins behind the cap.
template <class Keys>
HWY_INLINE void CapRow(const RowAttention& t, const Keys& k, Index n_keys, float* s) {
  const D d;
  const Index n = static_cast<Index>(hn::Lanes(d));
  for (Index i = 0; i < n_keys; i += n) hn::StoreU(SoftCap(hn::LoadU(d, s + i), t.cap), d, s + i);
  for (Index i = 0; t.has_addends && i < n_keys; ++i) s[i] += k(i)[t.d_head - 1];
}

constexpr Index kValuesAhead = 8;  // listed rows whose memory is on its way

// out[r][f] = out[r][f] * alpha[r] + sum over keys of p[r][key] * v[key][f], for kVecs
// vectors of channels.
template <int kRows, int kVecs, class Tag, class Keys>
HWY_INLINE void ValueTile(Tag d, const Keys& v, Index f, Index n_keys, const float* p,
                          const float* alpha, float* out, Index out_stride) {
  using Vec = hn::Vec<Tag>;
  const Index n = static_cast<Index>(hn::Lanes(d));
  Vec acc[kRows][kVecs];
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kVecs; ++j) acc[r][j] = hn::Zero(d);
  }
  for (Index i = 0; i < n_keys; ++i) {
    for (Index c = 0; c < kVecs * n; c += kLineFloats)
      v.Prefetch(i + kValuesAhead, i + kValuesAhead + 1, f + c);
    Vec value[kVecs];
    for (int j = 0; j < kVecs; ++j) value[j] = hn::LoadU(d, v(i) + f + j * n);
    for (int r = 0; r < kRows; ++r) {
      const Vec weight = hn::Set(d, p[r * kKeyBlock + i]);
      for (int j = 0; j < kVecs; ++j) acc[r][j] = hn::MulAdd(value[j], weight, acc[r][j]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kVecs; ++j) {
      float* o = out + r * out_stride + f + j * n;
      hn::StoreU(hn::MulAdd(hn::LoadU(d, o), hn::Set(d, alpha[r]), acc[r][j]), d, o);
    }
  }
}

// Hides what the row's query does not see, turns scores into probabilities; updates maximum and
// sum. Returns alpha.
HWY_INLINE float SoftmaxRow(const RowAttention& t, Index row, Index key0, Index n_keys, float* s,
                            float* max, float* sum) {
  const D d;
  const Index n = static_cast<Index>(hn::Lanes(d));
  const float minus_inf = -std::numeric_limits<float>::infinity();
  const Index pos = t.pos[row];
  const Index seen_end = pos + 1 - key0 < n_keys ? pos + 1 - key0 : n_keys;  // may be negative
  for (Index i = seen_end > 0 ? seen_end : 0; i < kKeyBlock; ++i) s[i] = minus_inf;
  if (t.window > 0) {
    for (Index i = 0; i < n_keys && key0 + i < pos - t.window + 1; ++i) s[i] = minus_inf;
  }
  V most = hn::Set(d, *max);
  for (Index i = 0; i < n_keys; i += n) most = hn::Max(most, hn::LoadU(d, s + i));
  most = hn::MaxOfLanes(d, most);
  const V safe_max = hn::IfThenElse(hn::Eq(most, hn::Set(d, minus_inf)), hn::Zero(d), most);
  const V factor = ExpOfNegative(hn::Sub(hn::Set(d, *max), safe_max));
  for (Index i = 0; i < n_keys; i += n) {
    hn::StoreU(ExpOfNegative(hn::Sub(hn::LoadU(d, s + i), safe_max)), d, s + i);
  }
  float block_sum = 0.0f;
  for (Index i = 0; i < n_keys; ++i) block_sum += s[i];
  *max = hn::GetLane(most);
  *sum = hn::GetLane(hn::MulAdd(hn::Set(d, *sum), factor, hn::Set(d, block_sum)));
  return hn::GetLane(factor);
}

template <int kRows, class Keys>
HWY_INLINE void Values(const Keys& v, Index d_head, Index n_keys, const float* p,
                       const float* alpha, float* out, Index out_stride) {
  const D d;
  const Index n = static_cast<Index>(hn::Lanes(d));
  constexpr int kVecs = kRows <= 4 ? 4 : 2;
  Index f = 0;
  for (; f + kVecs * n <= d_head; f += kVecs * n) {
    ValueTile<kRows, kVecs>(d, v, f, n_keys, p, alpha, out, out_stride);
  }
  for (; f + n <= d_head; f += n) {
    ValueTile<kRows, 1>(d, v, f, n_keys, p, alpha, out, out_stride);
  }
  for (; f < d_head; ++f) {
    ValueTile<kRows, 1>(hn::CappedTag<float, 1>(), v, f, n_keys, p, alpha, out, out_stride);
  }
}

// rows_of(matrix): its rows from the task's key 0 on.
template <int kRows, class RowsOf>
void AttendRows(const RowAttention& t, const RowsOf& rows_of) {
  if constexpr (kRows < kMaxRowTokens) {
    if (t.n_rows > kRows) return AttendRows<kRows + 1>(t, rows_of);
  }
  const Index n = static_cast<Index>(hn::Lanes(D()));
  const Index d_head = t.d_head;
  const Index d_dot = t.cap > 0.0f && t.has_addends ? d_head - 1 : d_head;
  const Index stride = d_head + 2;
  HWY_ALIGN float scores[kRows * kKeyBlock];
  float alpha[kRows];
  std::vector<float> last_keys;  // a vector of keys where fewer are left
  for (int r = 0; r < kRows; ++r) {
    float* part = t.part + r * stride;
    part[0] = -std::numeric_limits<float>::infinity();
    for (Index i = 1; i < stride; ++i) part[i] = 0.0f;
  }
  for (Index key0 = t.key_begin; key0 < t.key_end; key0 += kKeyBlock) {
    const Index n_keys = t.key_end - key0 < kKeyBlock ? t.key_end - key0 : kKeyBlock;
    const auto k = rows_of(t.k).From(key0);
    Index i = 0;
    for (; i + n <= n_keys; i += n) ScoreTile<kRows>(k.From(i), d_dot, d_head, t.q, scores + i);
    if (i < n_keys) {
      last_keys.assign(static_cast<std::size_t>(n * d_head), 0.0f);
      for (Index j = i; j < n_keys; ++j) {
        for (Index c = 0; c < d_head; ++c)
          last_keys[static_cast<std::size_t>((j - i) * d_head + c)] = k(j)[c];
      }
      ScoreTile<kRows>(StridedRows{last_keys.data(), d_head}, d_dot, d_head, t.q, scores + i);
    }
    for (int r = 0; r < kRows; ++r) {
      float* part = t.part + r * stride;
      if (t.cap > 0.0f) CapRow(t, k, n_keys, scores + r * kKeyBlock);
      alpha[r] = SoftmaxRow(t, r, key0, n_keys, scores + r * kKeyBlock, part, part + 1);
    }
    Values<kRows>(rows_of(t.v).From(key0), d_head, n_keys, scores, alpha, t.part + 2, stride);
  }
}

void Attend(const RowAttention& t) {
  if (t.rows == nullptr) {
    AttendRows<1>(t, [&](const float* matrix) { return StridedRows{matrix, t.d_head}; });
  } else {
    AttendRows<1>(t, [&](const float* matrix) {
      return ListedRows{matrix, t.d_head, t.rows, t.key_end};
    });
  }
}

template <class Tag>
HWY_INLINE void JoinOutput(Tag d, const float* parts, Index n_parts, Index stride,
                           const float* before, const float* after, float sum, float* out) {
  auto value = hn::Zero(d);
  for (Index i = 0; i < n_parts; ++i) {
    value = hn::MulAdd(hn::LoadU(d, parts + i * stride), hn::Set(d, after[i]),
                       hn::Mul(value, hn::Set(d, before[i])));
  }
  const auto inverse = hn::Div(hn::Set(d, 1.0f), hn::Set(d, sum));
  hn::StoreU(hn::Mul(value, inverse), d, out);
}

float JoinParts(const float* parts, Index n_parts, Index stride, Index d_head,
                const float* sink_logit, float* out) {
  const D d;
  std::vector<float> factors(static_cast<std::size_t>(2 * n_parts));
  float* before = factors.data();
  float* after = before + n_parts;
  // A sink is a score that was seen before the first key, with exp(sink - max) = 1.
  float max = sink_logit != nullptr ? *sink_logit : -std::numeric_limits<float>::infinity();
  float sum = sink_logit != nullptr ? 1.0f : 0.0f;
  for (Index i = 0; i < n_parts; ++i) {
    const float* part = parts + i * stride;
    const JoinFactors<D> f(d, hn::Set(d, max), hn::Set(d, part[0]));
    max = hn::GetLane(f.max);
    sum = hn::GetLane(f.Join(hn::Set(d, sum), hn::Set(d, part[1])));
    before[i] = hn::GetLane(f.before);
    after[i] = hn::GetLane(f.after);
  }
  const Index n = static_cast<Index>(hn::Lanes(d));
  Index c = 0;
  for (; c + n <= d_head; c += n) {
    JoinOutput(d, parts + 2 + c, n_parts, stride, before, after, sum, out + c);
  }
  for (; c < d_head; ++c) {
    JoinOutput(hn::CappedTag<float, 1>(), parts + 2 + c, n_parts, stride, before, after, sum,
               out + c);
  }
  return static_cast<float>(static_cast<double>(max) + std::log(static_cast<double>(sum)));
}

}  // namespace HWY_NAMESPACE
}  // namespace kvscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvscope {
HWY_EXPORT(RowMatmulF32);
HWY_EXPORT(RowMatmulBf16);
HWY_EXPORT(VectorFloats);
HWY_EXPORT(Attend);
HWY_EXPORT(JoinParts);

bool row_matmul_takes(Index n_rows, Index k, Index n_tok) {
  return n_tok <= kMaxRowTokens && k % 8 == 0 && n_rows >= HWY_DYNAMIC_DISPATCH(VectorFloats)();
}
void row_matmul(const float* w, Index ldw, Index n_rows, Index k, const float* bias, const float* x,
                Index n_tok, float* y, Index lanes) {
  HWY_DYNAMIC_DISPATCH(RowMatmulF32)(w, ldw, n_rows, k, bias, x, n_tok, y, lanes);
}
void row_matmul(const std::uint16_t* w, Index ldw, Index n_rows, Index k, const float* bias,
                const float* x, Index n_tok, float* y, Index lanes) {
  HWY_DYNAMIC_DISPATCH(RowMatmulBf16)(w, ldw, n_rows, k, bias, x, n_tok, y, lanes);
}
void row_attention(const RowAttention& task) {
  HWY_DYNAMIC_DISPATCH(Attend)(task);
}
float join_row_parts(const float* parts, Index n_parts, Index stride, Index d_head,
                     const float* sink_logit, float* out) {
  return HWY_DYNAMIC_DISPATCH(JoinParts)(parts, n_parts, stride, d_head, sink_logit, out);
}

}  // namespace kvscope
#endif  // HWY_ONCE
