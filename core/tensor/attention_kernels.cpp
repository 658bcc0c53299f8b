#include "core/tensor/attention_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/tensor/attention_kernels.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

#include <cmath>
#include <limits>
#include <vector>

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

// [n_keys, d_head] to tiles [d_head / kTileRows][n_keys][kTileRows]: read in order, one line after another.
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
                                     t.lanes, n_keys, nullptr, alpha + j,
                                     t.out + f * t.lanes + j);
  }
}

// One block of keys for one task. packed: its values as PackValues leaves them (n_packed keys), or null.
HWY_INLINE void KeyBlockStep(const LaneAttention& t, Index key0, const float* packed,
                             Index n_packed, std::int32_t first_pos, std::int32_t last_pos,
                             float* scores) {
  const Index n_keys = t.key_end - key0 < kKeyBlock ? t.key_end - key0 : kKeyBlock;
  Product<Init::kBias>(t.k + key0 * t.d_head, t.d_head, 1, n_keys, t.q, t.lanes, t.d_head, nullptr,
                       nullptr, scores);
  const bool crosses_diagonal = key0 + n_keys - 1 > first_pos;
  const bool crosses_window = t.window > 0 && key0 <= last_pos - t.window;
  if (crosses_diagonal || crosses_window) MaskScores(t, key0, n_keys, scores);
  SoftmaxStep(t, n_keys, scores);
  const float* alpha = LaneState(t).alpha;
  if (packed == nullptr) {
    Product<Init::kScaleOld>(t.v + key0 * t.d_head, 1, t.d_head, t.d_head, scores, t.lanes, n_keys,
                             nullptr, alpha, t.out);
    return;
  }
  const Index n = static_cast<Index>(hn::Lanes(D()));
  Index j = 0;
  for (; j + 2 * n <= t.lanes; j += 2 * n) {
    AddPackedValues<2>(t, packed, n_packed, n_keys, scores, alpha, j);
  }
  for (; j + n <= t.lanes; j += n) {
    AddPackedValues<1>(t, packed, n_packed, n_keys, scores, alpha, j);
  }
}

HWY_INLINE void StartSpan(const LaneAttention& t) {
  const LaneState state(t);
  for (Index j = 0; j < t.lanes; ++j) {
    state.max[j] = kMinusInfinity;
    state.sum[j] = 0.0f;
  }
  for (Index i = 0; i < t.d_head * t.lanes; ++i) t.out[i] = 0.0f;
}

// total = total joined with the task's running span. total [d_head + 2, lanes]: maximum, sum, output.
HWY_INLINE void JoinSpan(const LaneAttention& t, float* total) {
  const D d;
  const Index step = static_cast<Index>(hn::Lanes(d));
  const LaneState state(t);
  float* sums = total + t.lanes;
  float* outs = sums + t.lanes;
  for (Index j = 0; j < t.lanes; j += step) {
    const JoinFactors<D> f(d, hn::LoadU(d, total + j), hn::LoadU(d, state.max + j));
    hn::StoreU(f.max, d, total + j);
    hn::StoreU(f.Join(hn::LoadU(d, sums + j), hn::LoadU(d, state.sum + j)), d, sums + j);
    for (Index i = j; i < t.d_head * t.lanes; i += t.lanes) {
      hn::StoreU(f.Join(hn::LoadU(d, outs + i), hn::LoadU(d, t.out + i)), d, outs + i);
    }
  }
}

HWY_INLINE void Finish(const LaneAttention& t, const float* max, const float* sum,
                       const float* out) {
  const D d;
  const Index step = static_cast<Index>(hn::Lanes(d));
  for (Index j = 0; j < t.lanes; j += step) {
    const V inverse = hn::Div(hn::Set(d, 1.0f), hn::LoadU(d, sum + j));
    for (Index i = j; i < t.d_head * t.lanes; i += t.lanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, out + i), inverse), d, t.out + i);
    }
  }
  for (Index j = 0; j < t.lanes; ++j) {
    t.lse[j] = static_cast<float>(static_cast<double>(max[j]) + std::log(static_cast<double>(sum[j])));
  }
}

void Attention(const LaneAttention* tasks, Index n_tasks, float* scores, float* packed) {
  struct Positions {
    std::int32_t first, last;
  };
  std::vector<Positions> positions(static_cast<std::size_t>(n_tasks));
  Index first_key = tasks[0].key_begin;
  Index last_key = tasks[0].key_end;
  bool has_sinks = false;
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
    has_sinks = has_sinks || t.sinks != nullptr;
    StartSpan(t);
  }
  const Index d_head = tasks[0].d_head;
  const Index lanes = tasks[0].lanes;
  const Index total_size = (d_head + 2) * lanes;
  const bool has_totals = has_sinks || last_key > (first_key / kKeySpan + 1) * kKeySpan;
  std::vector<float> totals(has_totals ? static_cast<std::size_t>(n_tasks * total_size) : 0, 0.0f);
  if (has_totals) {
    for (Index i = 0; i < n_tasks; ++i) {
      // A sink is a score that was seen before the first key, with exp(sink - max) = 1.
      const float* sinks = tasks[i].sinks;
      float* total = totals.data() + i * total_size;
      for (Index j = 0; j < lanes; ++j) {
        total[j] = sinks != nullptr ? sinks[j] : kMinusInfinity;
        total[lanes + j] = sinks != nullptr ? 1.0f : 0.0f;
      }
    }
  }
  for (Index key0 = first_key; key0 < last_key; key0 += kKeyBlock) {
    if (key0 > first_key && key0 % kKeySpan == 0) {
      for (Index i = 0; i < n_tasks; ++i) {
        JoinSpan(tasks[i], totals.data() + i * total_size);
        StartSpan(tasks[i]);
      }
    }
    const Index n_keys = last_key - key0 < kKeyBlock ? last_key - key0 : kKeyBlock;
    if (packed != nullptr) PackValues(tasks[0].v + key0 * d_head, n_keys, d_head, packed);
    for (Index i = 0; i < n_tasks; ++i) {
      const LaneAttention& t = tasks[i];
      if (key0 >= t.key_end || key0 < t.key_begin) continue;
      const Positions& p = positions[static_cast<std::size_t>(i)];
      KeyBlockStep(t, key0, packed, n_keys, p.first, p.last, scores);
    }
  }
  for (Index i = 0; i < n_tasks; ++i) {
    const LaneState state(tasks[i]);
    if (has_totals) {
      float* total = totals.data() + i * total_size;
      JoinSpan(tasks[i], total);
      Finish(tasks[i], total, total + lanes, total + 2 * lanes);
    } else {
      Finish(tasks[i], state.max, state.sum, tasks[i].out);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvscope {
HWY_EXPORT(Attention);

void lane_attention(const LaneAttention& task) {
  HWY_DYNAMIC_DISPATCH(Attention)(&task, 1, task.scratch + 3 * task.lanes, nullptr);
}

Index lane_attention_scratch(Index d_head) { return kKeyBlock * (kWideLanes + d_head + 16); }

void lane_attention(std::span<const LaneAttention> tasks, float* scratch) {
  if (tasks.empty()) return;
  HWY_DYNAMIC_DISPATCH(Attention)
  (tasks.data(), static_cast<Index>(tasks.size()), scratch,
   tasks.size() > 1 ? scratch + kKeyBlock * kWideLanes : nullptr);
}

}  // namespace kvscope
#endif  // HWY_ONCE
