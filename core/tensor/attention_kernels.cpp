#include "core/tensor/attention_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/tensor/attention_kernels.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/tensor/dtype.hpp"
#include "core/tensor/lane_tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kvscope {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Where a task keeps its softmax: rows of `lanes` floats.
struct LaneState {
  float* max;    // running maximum of the scores
  float* sum;    // running sum of exp(score - max)
  float* alpha;  // factor for what was summed before the running block
  explicit LaneState(const LaneAttention& t)
      : max(t.scratch), sum(max + t.lanes), alpha(sum + t.lanes) {}
};

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

// Scores of a block of keys to probabilities relative to the new maximum, and the state with them.
HWY_INLINE void SoftmaxStep(const LaneAttention& t, Index n_keys, float* scores) {
  const D d;
  const Index step = static_cast<Index>(hn::Lanes(d));
  const Index lanes = t.lanes;
  const LaneState state(t);
  const V minus_inf = hn::Set(d, kMinusInfinity);
  for (Index j = 0; j < lanes; j += step) {
    const V old_max = hn::LoadU(d, state.max + j);
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
    hn::StoreU(new_max, d, state.max + j);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, state.sum + j), factor, block_sum), d, state.sum + j);
    hn::StoreU(factor, d, state.alpha + j);
  }
}

// Caps the scores of a block of keys; addends (one per key, `stride` apart, or null) join
// behind the cap.
HWY_INLINE void CapScores(const LaneAttention& t, Index n_keys, const float* addends, Index stride,
                          float* scores) {
  const D d;
  const Index step = static_cast<Index>(hn::Lanes(d));
  for (Index i = 0; i < n_keys; ++i) {
    const V addend = hn::Set(d, addends == nullptr ? 0.0f : addends[i * stride]);
    float* s = scores + i * t.lanes;
    for (Index j = 0; j < t.lanes; j += step)
      hn::StoreU(hn::Add(SoftCap(hn::LoadU(d, s + j), t.cap), addend), d, s + j);
  }
}

// [n_keys, d_head] to tiles [d_head / kTileRows][n_keys][kTileRows]: read in order, one
// line after another.
HWY_INLINE void PackValues(const float* HWY_RESTRICT v, Index n_keys, Index d_head,
                           float* HWY_RESTRICT packed) {
  for (Index i = 0; i < n_keys; ++i) {
    for (Index f = 0; f < d_head; f += kTileRows) {
      float* to = packed + f * n_keys + i * kTileRows;
      const Index n = d_head - f < kTileRows ? d_head - f : kTileRows;
      if (n == kTileRows) {
        for (Index r = 0; r < kTileRows; ++r) to[r] = v[i * d_head + f + r];
      } else {
        for (Index r = 0; r < n; ++r) to[r] = v[i * d_head + f + r];
      }
    }
  }
}

template <int kVecs>
HWY_INLINE void AddPackedValues(const LaneAttention& t, const float* packed, Index n_packed,
                                Index n_keys, const float* scores, const float* alpha, Index j) {
  Index f = 0;
  for (; f + kTileRows <= t.d_head; f += kTileRows) {
    Tile<kTileRows, kVecs, Init::kScaleOld>(packed + f * n_packed, 1, kTileRows, scores + j,
                                            t.lanes, n_keys, nullptr, alpha + j,
                                            t.out + f * t.lanes + j);
  }
  if (f < t.d_head) {
    TileRest<kVecs, Init::kScaleOld>(t.d_head - f, packed + f * n_packed, 1, kTileRows, scores + j,
                                     t.lanes, n_keys, nullptr, alpha + j, t.out + f * t.lanes + j);
  }
}

// A block of keys and values in f32. Its functions are those of every kind of block: Begin reads
// the keys [key0, key0 + n_keys) of all tasks; Scores are one task's products with keys, AddValues
// turns them into weights and adds the weighted values.
class F32Block {
 public:
  F32Block(const LaneAttention* tasks, Index n_tasks, float* packed)
      : t_(tasks[0]), packed_(n_tasks > 1 ? packed : nullptr) {}

  void Begin(Index key0, Index n_keys) {
    Take(t_.k + key0 * t_.d_head, t_.v + key0 * t_.d_head, n_keys);
  }
  // Keys that scores are computed for, those behind the last one included: masked,
  // and without weight.
  Index n_scores(Index n_keys) const { return n_keys; }

  HWY_INLINE void Scores(const LaneAttention& t, Index, Index n_keys, float* scores) const {
    // The last channel is not part of the product.
    const bool is_apart = t.cap > 0.0f && t.has_addends;
    const Index d_dot = is_apart ? t.d_head - 1 : t.d_head;
    Product<Init::kBias>(k_, t.d_head, 1, n_keys, t.q, t.lanes, d_dot, nullptr, nullptr, scores);
    if (t.cap > 0.0f) CapScores(t, n_keys, is_apart ? k_ + d_dot : nullptr, t.d_head, scores);
  }
  HWY_INLINE void AddValues(const LaneAttention& t, Index n_keys, float* scores) const {
    SoftmaxStep(t, n_keys, scores);
    const float* alpha = LaneState(t).alpha;
    if (packed_ == nullptr) {
      Product<Init::kScaleOld>(v_, 1, t.d_head, t.d_head, scores, t.lanes, n_keys, nullptr, alpha,
                               t.out);
      return;
    }
    const Index n = static_cast<Index>(hn::Lanes(D()));
    Index j = 0;
    for (; j + 2 * n <= t.lanes; j += 2 * n) {
      AddPackedValues<2>(t, packed_, n_packed_, n_keys, scores, alpha, j);
    }
    for (; j + n <= t.lanes; j += n) {
      AddPackedValues<1>(t, packed_, n_packed_, n_keys, scores, alpha, j);
    }
  }

 protected:
  void Take(const float* k, const float* v, Index n_keys) {
    k_ = k;
    v_ = v;
    n_packed_ = n_keys;
    if (packed_ != nullptr) PackValues(v, n_keys, t_.d_head, packed_);
  }
  const LaneAttention& t_;

 private:
  float* packed_;  // the values as PackValues leaves them, or null
  Index n_packed_ = 0;
  const float* k_ = nullptr;
  const float* v_ = nullptr;
};

// Keys and values in bf16 where the processor has no products of such: widened, a block at a time.
class WidenedBlock final : public F32Block {
 public:
  WidenedBlock(const LaneAttention* tasks, Index n_tasks, float* packed)
      : F32Block(tasks, n_tasks, packed),
        rows_(static_cast<std::size_t>(2 * kKeyBlock * tasks[0].d_head)) {}
  void Begin(Index key0, Index n_keys) {
    const auto n = static_cast<std::size_t>(n_keys * t_.d_head);
    to_float(DType::bf16, t_.k16 + key0 * t_.d_head, rows_.data(), n);
    to_float(DType::bf16, t_.v16 + key0 * t_.d_head, rows_.data() + n, n);
    Take(rows_.data(), rows_.data() + n, n_keys);
  }

 private:
  std::vector<float> rows_;
};

// Two rows of floats as pairs of bf16, rounded to nearest even. Finite values only.
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> RoundedPairs(V even, V odd) {
  const hn::RebindToUnsigned<D> du;
  const auto rounded = [&](V x) {
    const auto bits = hn::BitCast(du, x);
    const auto lowest = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    return hn::Add(bits, hn::Add(lowest, hn::Set(du, 0x7fffu)));
  };
  return hn::Or(hn::ShiftRight<16>(rounded(even)), hn::And(rounded(odd), hn::Set(du, 0xffff0000u)));
}

// A running maximum may lag behind by this much: weights up to e^8 are no harm.
constexpr float kMaxGrowth = 8.0f;

// Scores of a block of keys (even n_keys) to pairs of weights relative to the running maximum, and
// the state with them. The maximum moves only where it lags too far behind: then what was summed
// before must be scaled by alpha. Returns true if any lane's alpha is not 1.
HWY_INLINE bool SoftmaxToPairs(const LaneAttention& t, Index n_keys, const float* scores,
                               std::uint16_t* pairs) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  const Index step = static_cast<Index>(hn::Lanes(d));
  const Index lanes = t.lanes;
  const LaneState state(t);
  const V minus_inf = hn::Set(d, kMinusInfinity);
  bool has_moved = false;
  for (Index j = 0; j < lanes; j += step) {
    const V old_max = hn::LoadU(d, state.max + j);
    V most = hn::LoadU(d, scores + j), most_odd = hn::LoadU(d, scores + lanes + j);
    for (Index i = 2; i < n_keys; i += 2) {
      most = hn::Max(most, hn::LoadU(d, scores + i * lanes + j));
      most_odd = hn::Max(most_odd, hn::LoadU(d, scores + (i + 1) * lanes + j));
    }
    most = hn::Max(most, most_odd);
    const auto moves = hn::Gt(most, hn::Add(old_max, hn::Set(d, kMaxGrowth)));
    const V new_max = hn::IfThenElse(moves, most, old_max);
    // A lane that has seen no key yet keeps max = -inf; subtracting it would make NaN.
    const V safe_max = hn::IfThenElse(hn::Eq(new_max, minus_inf), hn::Zero(d), new_max);
    V sum_even = hn::Zero(d), sum_odd = hn::Zero(d);
    for (Index i = 0; i < n_keys; i += 2) {
      const float* s = scores + i * lanes + j;
      const V even = ExpOfNegative(hn::Sub(hn::LoadU(d, s), safe_max));
      const V odd = ExpOfNegative(hn::Sub(hn::LoadU(d, s + lanes), safe_max));
      sum_even = hn::Add(sum_even, even);
      sum_odd = hn::Add(sum_odd, odd);
      hn::StoreU(RoundedPairs(even, odd), du,
                 reinterpret_cast<std::uint32_t*>(pairs) + i / 2 * lanes + j);
    }
    const V block_sum = hn::Add(sum_even, sum_odd);
    V factor = hn::Set(d, 1.0f);
    if (!hn::AllFalse(d, moves)) {
      has_moved = true;
      factor = hn::IfThenElse(moves, ExpOfNegative(hn::Sub(old_max, safe_max)), factor);
    }
    hn::StoreU(new_max, d, state.max + j);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, state.sum + j), factor, block_sum), d, state.sum + j);
    hn::StoreU(factor, d, state.alpha + j);
  }
  return has_moved;
}

// out[j][r] = row[r][c + j] for eight rows and eight elements; rows of out are `stride` apart.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void Transpose8x8(const std::uint16_t* const row[8], Index c, std::uint16_t* out,
                             Index stride) {
  for (Index j = 0; j < 8; ++j) {
    for (Index r = 0; r < 8; ++r) out[j * stride + r] = row[r][c + j];
  }
}
#else
HWY_INLINE void Transpose8x8(const std::uint16_t* const row[8], Index c, std::uint16_t* out,
                             Index stride) {
  const hn::FixedTag<std::uint16_t, 8> d16;
  const hn::FixedTag<std::uint32_t, 4> d32;
  const hn::FixedTag<std::uint64_t, 2> d64;
  // Of rows 2r and 2r + 1: elements 0 to 3, and 4 to 7.
  hn::Vec<hn::FixedTag<std::uint32_t, 4>> pairs[4][2];
  for (int r = 0; r < 4; ++r) {
    const auto even = hn::LoadU(d16, row[2 * r] + c);
    const auto odd = hn::LoadU(d16, row[2 * r + 1] + c);
    pairs[r][0] = hn::BitCast(d32, hn::InterleaveLower(d16, even, odd));
    pairs[r][1] = hn::BitCast(d32, hn::InterleaveUpper(d16, even, odd));
  }
  for (int half = 0; half < 2; ++half) {
    const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d32, pairs[0][half], pairs[1][half]));
    const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d32, pairs[0][half], pairs[1][half]));
    const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d32, pairs[2][half], pairs[3][half]));
    const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d32, pairs[2][half], pairs[3][half]));
    std::uint16_t* to = out + 4 * half * stride;
    hn::StoreU(hn::BitCast(d16, hn::InterleaveLower(d64, low01, low23)), d16, to);
    hn::StoreU(hn::BitCast(d16, hn::InterleaveUpper(d64, low01, low23)), d16, to + stride);
    hn::StoreU(hn::BitCast(d16, hn::InterleaveLower(d64, high01, high23)), d16, to + 2 * stride);
    hn::StoreU(hn::BitCast(d16, hn::InterleaveUpper(d64, high01, high23)), d16, to + 3 * stride);
  }
}
#endif

// Keys and values in bf16, multiplied as such. d_head is a multiple of 32.
class Bf16Block {
 public:
  Bf16Block(const LaneAttention* tasks, Index n_tasks, const Bf16Products& products)
      : t_(tasks[0]), products_(products), n_q_pairs_(t_.d_head * t_.lanes) {
    const auto block = static_cast<std::size_t>(kKeyBlock * t_.d_head);
    memory_.resize(static_cast<std::size_t>(n_tasks * n_q_pairs_ + kKeyBlock * t_.lanes) +
                   2 * block + kAlign);
    auto* first = memory_.data();
    // Tiles are read line by line.
    while (reinterpret_cast<std::uintptr_t>(first) % (2 * kAlign) != 0) ++first;
    q_pairs_ = first;
    values_ = q_pairs_ + n_tasks * n_q_pairs_;
    last_keys_ = values_ + block;
    weights_ = last_keys_ + block;
    for (Index i = 0; i < n_tasks; ++i) {
      for (Index c = 0; c < t_.d_head; c += 2) {
        const float* q = tasks[i].q + c * t_.lanes;
        auto* to = reinterpret_cast<std::uint32_t*>(q_pairs_ + i * n_q_pairs_ + c * t_.lanes);
        for (Index j = 0; j < t_.lanes; j += static_cast<Index>(hn::Lanes(D()))) {
          hn::StoreU(RoundedPairs(hn::LoadU(D(), q + j), hn::LoadU(D(), q + t_.lanes + j)),
                     hn::RebindToUnsigned<D>(), to + j);
        }
      }
    }
    products_.start();
  }
  ~Bf16Block() { products_.stop(); }
  Bf16Block(const Bf16Block&) = delete;
  Bf16Block& operator=(const Bf16Block&) = delete;

  void Begin(Index key0, Index n_keys) {
    n_padded_ = n_scores(n_keys);
    k_ = t_.k16 + key0 * t_.d_head;
    if (n_padded_ > n_keys) {
      const auto n = static_cast<std::size_t>(n_keys * t_.d_head);
      std::copy_n(k_, n, last_keys_);
      std::fill(last_keys_ + n, last_keys_ + n_padded_ * t_.d_head, std::uint16_t{0});
      k_ = last_keys_;
    }
    Transpose(t_.v16 + key0 * t_.d_head, n_keys);
  }
  Index n_scores(Index n_keys) const { return (n_keys + kStep - 1) / kStep * kStep; }

  HWY_INLINE void Scores(const LaneAttention& t, Index task, Index n_keys, float* scores) const {
    products_.set(k_, t.d_head, n_keys, t.d_head, q_pairs_ + task * n_q_pairs_, scores, t.lanes);
    if (t.cap > 0.0f) CapScores(t, n_keys, nullptr, 0, scores);
  }
  HWY_INLINE void AddValues(const LaneAttention& t, Index n_keys, const float* scores) const {
    if (SoftmaxToPairs(t, n_keys, scores, weights_)) {
      const D d;
      const Index n = static_cast<Index>(hn::Lanes(d));
      for (Index j = 0; j < t.lanes; j += n) {
        const V factor = hn::LoadU(d, LaneState(t).alpha + j);
        for (Index i = j; i < t.d_head * t.lanes; i += t.lanes) {
          hn::StoreU(hn::Mul(hn::LoadU(d, t.out + i), factor), d, t.out + i);
        }
      }
    }
    products_.add(values_, n_padded_, t.d_head, n_keys, weights_, t.out, t.lanes);
  }

 private:
  static constexpr Index kStep = 32;  // keys that a product takes at a time
  static constexpr Index kAlign = 32;

  // Values as rows of channels [d_head, n_padded_], zero from n_keys on.
  void Transpose(const std::uint16_t* v, Index n_keys) {
    const Index d_head = t_.d_head;
    const std::vector<std::uint16_t> none(n_keys < n_padded_ ? static_cast<std::size_t>(d_head) : 0,
                                          0);
    for (Index i = 0; i < n_padded_; i += 8) {
      const std::uint16_t* row[8];
      for (Index r = 0; r < 8; ++r) row[r] = i + r < n_keys ? v + (i + r) * d_head : none.data();
      for (Index c = 0; c < d_head; c += 8)
        Transpose8x8(row, c, values_ + c * n_padded_ + i, n_padded_);
    }
  }

  const LaneAttention& t_;
  const Bf16Products& products_;
  Index n_q_pairs_;
  std::vector<std::uint16_t> memory_;
  std::uint16_t* q_pairs_;    // [n_tasks][d_head / 2, lanes, 2]
  std::uint16_t* values_;     // [d_head, n_padded_]
  std::uint16_t* last_keys_;  // [n_padded_, d_head] where fewer keys are left
  std::uint16_t* weights_;    // [kKeyBlock / 2, lanes, 2]
  const std::uint16_t* k_ = nullptr;
  Index n_padded_ = 0;
};

// One block of keys for one task.
template <class Block>
HWY_INLINE void KeyBlockStep(const LaneAttention& t, Index task, const Block& block, Index key0,
                             std::int32_t first_pos, std::int32_t last_pos, float* scores) {
  const Index n_keys = block.n_scores(t.key_end - key0 < kKeyBlock ? t.key_end - key0 : kKeyBlock);
  block.Scores(t, task, n_keys, scores);
  const bool crosses_diagonal = key0 + n_keys - 1 > first_pos;
  const bool crosses_window = t.window > 0 && key0 <= last_pos - t.window;
  if (crosses_diagonal || crosses_window) MaskScores(t, key0, n_keys, scores);
  block.AddValues(t, n_keys, scores);
}

HWY_INLINE void StartSpan(const LaneAttention& t) {
  const LaneState state(t);
  for (Index j = 0; j < t.lanes; ++j) {
    state.max[j] = kMinusInfinity;
    state.sum[j] = 0.0f;
  }
  for (Index i = 0; i < t.d_head * t.lanes; ++i) t.out[i] = 0.0f;
}

// total = total joined with a span. Both [d_head + 2, lanes]: maximum, sum, output.
HWY_INLINE void JoinSpan(const float* max, const float* sum, const float* out, Index d_head,
                         Index lanes, float* total) {
  const D d;
  const Index step = static_cast<Index>(hn::Lanes(d));
  float* sums = total + lanes;
  float* outs = sums + lanes;
  for (Index j = 0; j < lanes; j += step) {
    const JoinFactors<D> f(d, hn::LoadU(d, total + j), hn::LoadU(d, max + j));
    hn::StoreU(f.max, d, total + j);
    hn::StoreU(f.Join(hn::LoadU(d, sums + j), hn::LoadU(d, sum + j)), d, sums + j);
    for (Index i = j; i < d_head * lanes; i += lanes) {
      hn::StoreU(f.Join(hn::LoadU(d, outs + i), hn::LoadU(d, out + i)), d, outs + i);
    }
  }
}

// A sink is a score that was seen before the first key, with exp(sink - max) = 1.
HWY_INLINE void StartTotal(const float* sink_logits, Index lanes, float* total) {
  for (Index j = 0; j < lanes; ++j) {
    total[j] = sink_logits != nullptr ? sink_logits[j] : kMinusInfinity;
    total[lanes + j] = sink_logits != nullptr ? 1.0f : 0.0f;
  }
}

HWY_INLINE void Finish(const float* max, const float* sum, const float* from, Index d_head,
                       Index lanes, float* out, float* lse) {
  const D d;
  const Index step = static_cast<Index>(hn::Lanes(d));
  for (Index j = 0; j < lanes; j += step) {
    const V inverse = hn::Div(hn::Set(d, 1.0f), hn::LoadU(d, sum + j));
    for (Index i = j; i < d_head * lanes; i += lanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, from + i), inverse), d, out + i);
    }
  }
  for (Index j = 0; j < lanes; ++j) {
    lse[j] =
        static_cast<float>(static_cast<double>(max[j]) + std::log(static_cast<double>(sum[j])));
  }
}

template <class Block>
void AttendBlocks(const LaneAttention* tasks, Index n_tasks, float* scores, Block&& block) {
  struct Positions {
    std::int32_t first, last;
  };
  std::vector<Positions> positions(static_cast<std::size_t>(n_tasks));
  Index first_key = tasks[0].key_begin;
  Index last_key = tasks[0].key_end;
  bool has_sink_logits = false;
  for (Index i = 0; i < n_tasks; ++i) {
    const LaneAttention& t = tasks[i];
    Positions& p = positions[static_cast<std::size_t>(i)];
    p = {t.pos[0], t.pos[0]};
    for (Index j = 0; j < t.lanes; ++j) {
      p.first = t.pos[j] < p.first ? t.pos[j] : p.first;
      p.last = t.pos[j] > p.last ? t.pos[j] : p.last;
    }
    first_key = t.key_begin < first_key ? t.key_begin : first_key;
    last_key = t.key_end > last_key ? t.key_end : last_key;
    has_sink_logits = has_sink_logits || t.sink_logits != nullptr;
    StartSpan(t);
  }
  const Index d_head = tasks[0].d_head;
  const Index lanes = tasks[0].lanes;
  const Index total_size = (d_head + 2) * lanes;
  const bool has_totals = has_sink_logits || last_key > (first_key / kKeySpan + 1) * kKeySpan;
  std::vector<float> totals(has_totals ? static_cast<std::size_t>(n_tasks * total_size) : 0, 0.0f);
  if (has_totals) {
    for (Index i = 0; i < n_tasks; ++i) {
      StartTotal(tasks[i].sink_logits, lanes, totals.data() + i * total_size);
    }
  }
  for (Index key0 = first_key; key0 < last_key; key0 += kKeyBlock) {
    if (key0 > first_key && key0 % kKeySpan == 0) {
      for (Index i = 0; i < n_tasks; ++i) {
        const LaneState state(tasks[i]);
        JoinSpan(state.max, state.sum, tasks[i].out, d_head, lanes, totals.data() + i * total_size);
        StartSpan(tasks[i]);
      }
    }
    const Index n_keys = last_key - key0 < kKeyBlock ? last_key - key0 : kKeyBlock;
    block.Begin(key0, n_keys);
    for (Index i = 0; i < n_tasks; ++i) {
      const LaneAttention& t = tasks[i];
      if (key0 >= t.key_end || key0 < t.key_begin) continue;
      const Positions& p = positions[static_cast<std::size_t>(i)];
      KeyBlockStep(t, i, block, key0, p.first, p.last, scores);
    }
  }
  for (Index i = 0; i < n_tasks; ++i) {
    const LaneAttention& t = tasks[i];
    const LaneState state(t);
    if (t.part != nullptr) {
      std::copy_n(state.max, lanes, t.part);
      std::copy_n(state.sum, lanes, t.part + lanes);
      std::copy_n(t.out, d_head * lanes, t.part + 2 * lanes);
    } else if (has_totals) {
      float* total = totals.data() + i * total_size;
      JoinSpan(state.max, state.sum, t.out, d_head, lanes, total);
      Finish(total, total + lanes, total + 2 * lanes, d_head, lanes, t.out, t.lse);
    } else {
      Finish(state.max, state.sum, t.out, d_head, lanes, t.out, t.lse);
    }
  }
}

void Attention(const LaneAttention* tasks, Index n_tasks, float* scores, float* packed,
               Matmul matmul) {
  const LaneAttention& t = tasks[0];
  const Bf16Products* products = bf16_products(matmul);
  if (t.k16 == nullptr) {
    AttendBlocks(tasks, n_tasks, scores, F32Block(tasks, n_tasks, packed));
  } else if (products == nullptr || t.d_head % 32 != 0) {
    AttendBlocks(tasks, n_tasks, scores, WidenedBlock(tasks, n_tasks, packed));
  } else {
    AttendBlocks(tasks, n_tasks, scores, Bf16Block(tasks, n_tasks, *products));
  }
}

void JoinParts(const float* parts, Index n_parts, Index stride, Index d_head, Index lanes,
               const float* sink_logits, float* out, float* lse) {
  std::vector<float> total(static_cast<std::size_t>((d_head + 2) * lanes), 0.0f);
  StartTotal(sink_logits, lanes, total.data());
  for (Index i = 0; i < n_parts; ++i) {
    const float* part = parts + i * stride;
    JoinSpan(part, part + lanes, part + 2 * lanes, d_head, lanes, total.data());
  }
  Finish(total.data(), total.data() + lanes, total.data() + 2 * lanes, d_head, lanes, out, lse);
}

}  // namespace HWY_NAMESPACE
}  // namespace kvscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvscope {
HWY_EXPORT(Attention);
HWY_EXPORT(JoinParts);

Index lane_attention_scratch(Index d_head) {
  return kKeyBlock * (kWideLanes + d_head + 16);
}

void lane_attention(std::span<const LaneAttention> tasks, float* scratch, Matmul matmul) {
  if (tasks.empty()) return;
  HWY_DYNAMIC_DISPATCH(Attention)
  (tasks.data(), static_cast<Index>(tasks.size()), scratch, scratch + kKeyBlock * kWideLanes,
   matmul);
}

void lane_attention_join(const float* parts, Index n_parts, Index stride, Index d_head, Index lanes,
                         const float* sink_logits, float* out, float* lse) {
  HWY_DYNAMIC_DISPATCH(JoinParts)(parts, n_parts, stride, d_head, lanes, sink_logits, out, lse);
}

}  // namespace kvscope
#endif  // HWY_ONCE
