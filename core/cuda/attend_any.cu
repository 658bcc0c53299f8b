#include "core/cuda/attend_any.hpp"

#include <string>

#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"

namespace kvscope::gpu {

namespace {

constexpr int kWarps = 8;
constexpr int kMostHead = 256;
/// Groups of 32 keys are dealt to this many parts, whose sums are joined in order: by a warp one
/// after another, or, where queries are few, by a block's warps at once. No bit depends on which.
constexpr int kParts = kWarps;
constexpr unsigned kAll = 0xffffffffu;

__device__ __forceinline__ float largest_of_warp(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(kAll, x, step));
  return x;
}

__device__ __forceinline__ float capped(float score, float cap) {
  return cap > 0.0f ? cap * tanhf(score / cap) : score;
}

// A lane's channels: in pairs, 64 channels apart.
__device__ __forceinline__ int channel_of(int lane, int i) {
  return i / 2 * 64 + lane * 2 + i % 2;
}

// The softmax of one query over some keys; a lane has kEach channels.
template <int kEach>
struct Running {
  float largest = -INFINITY;
  float total = 0.0f;
  float sum[kEach] = {};

  // 32 more keys, one per lane; row(i) is where the value of lane i's key begins. A lane without a
  // key has score -infinity.
  template <class T, class Row>
  __device__ __forceinline__ void add(float score, int d, const Row& row, const T*) {
    constexpr int kTogether = 4;  // keys whose values are on their way at once
    const int lane = static_cast<int>(threadIdx.x) % 32;
    // NaN as the largest: it reaches the total, and is reported
    const float best = fmaxf(largest, largest_of_warp(isnan(score) ? INFINITY : score));
    if (best == -INFINITY) return;
    const float factor = expf(largest - best);
    const float weight = expf(score - best);
    largest = best;
    total = fmaf(total, factor, warp_sum(weight));
#pragma unroll
    for (int i = 0; i < kEach; ++i) sum[i] *= factor;
    for (int first = 0; first < 32; first += kTogether) {
      float part[kTogether][kEach / 2][2];
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        const T* values = row(first + u);
#pragma unroll
        for (int i = 0; i < kEach / 2; ++i) {
          if (channel_of(lane, 2 * i) < d)
            load_row_part(values + channel_of(lane, 2 * i), part[u][i]);
        }
      }
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        const float w = __shfl_sync(kAll, weight, first + u);
        if (w == 0.0f) continue;  // the same in all lanes
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          if (channel_of(lane, i) < d) sum[i] = fmaf(w, part[u][i / 2][i % 2], sum[i]);
        }
      }
    }
  }

  // The keys of another part.
  __device__ __forceinline__ void join(const Running& part) {
    const float best = fmaxf(largest, part.largest);
    if (best == -INFINITY) return;
    const float own = expf(largest - best);
    const float other = expf(part.largest - best);
    largest = best;
    total = fmaf(total, own, part.total * other);
#pragma unroll
    for (int i = 0; i < kEach; ++i) sum[i] = fmaf(sum[i], own, part.sum[i] * other);
  }
};

template <int kStep, class T>
__device__ __forceinline__ float product_by(const float* q, const T* k, int d) {
  float sum = 0.0f;
  float part[kStep];
#pragma unroll 4
  for (int c = 0; c < d; c += kStep) {
    load_row_part(k + c, part);
#pragma unroll
    for (int u = 0; u < kStep; ++u) sum = fmaf(q[c + u], part[u], sum);
  }
  return sum;
}

// By 16 bytes of the key at a time, where rows begin at such places.
template <class T>
__device__ __forceinline__ float product(const float* q, const T* k, int d) {
  constexpr int kWide = 16 / static_cast<int>(sizeof(T));
  return d % kWide == 0 ? product_by<kWide>(q, k, d) : product_by<2>(q, k, d);
}

// The keys of one of kParts for the query of a warp, which stands at pos.
template <class T, int kEach>
__device__ __forceinline__ Running<kEach> attend_part(const AnyAttention& call, const float* q,
                                                      int head, int t, int part) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int d = call.d_head;
  const int kv_head = head / (call.n_q / call.n_kv);
  const std::int64_t pos = call.pos_begin + t;
  const T* const k = static_cast<const T*>(call.k) + kv_head * call.capacity * d;
  const T* const v = static_cast<const T*>(call.v) + kv_head * call.capacity * d;
  constexpr std::int64_t kStep = 32 * kParts;

  Running<kEach> running;
  const AnySummaries& summaries = call.summaries;
  if (summaries.begin != nullptr && summaries.list_share == nullptr) {
    const std::int64_t last = summaries.begin[kv_head + 1] - 1;
    for (std::int64_t first = summaries.begin[kv_head] + 32 * part; first <= last; first += kStep) {
      const std::int64_t at = min(first + lane, last);
      float score = -INFINITY;
      if (first + lane <= last)
        score = capped(call.score_scale * product(q, summaries.k + at * d, d), call.score_cap) +
                summaries.log_count[at];
      running.add(
          score, d, [&](int i) { return summaries.v + min(first + i, last) * d; }, summaries.v);
    }
  }
  // consecutive positions, in groups of 32 that begin at a multiple of 32
  const auto add_range = [&](std::int64_t begin, std::int64_t last) {
    const std::int64_t group = begin / 32;
    const std::int64_t own = group + (part - group % kParts + kParts) % kParts;  // the part's first
    for (std::int64_t first = 32 * own; first <= last; first += kStep) {
      const std::int64_t key = first + lane;
      float score = -INFINITY;
      if (key >= begin && key <= last)
        score = capped(call.score_scale * product(q, k + key * d, d), call.score_cap);
      running.add(
          score, d, [&](int i) { return v + min(first + i, last) * d; }, v);
    }
  };
  if (call.lists.keys != nullptr) {
    const AnyLists& lists = call.lists;
    const std::int64_t owner = head / lists.heads_per_owner;
    std::int64_t begin, end;
    if (lists.counts != nullptr) {
      const std::int64_t list = static_cast<std::int64_t>(t) * call.n_q + head;
      begin = list * lists.stride;
      end = begin + lists.counts[list];
    } else {
      const std::int64_t list = owner * lists.n_row_blocks + t / lists.rows_per_list;
      begin = lists.begin[list];
      end = lists.begin[list + 1];
    }
    for (std::int64_t first = begin + 32 * part; first < end; first += kStep) {
      const std::int64_t at = min(first + lane, end - 1);
      const std::int64_t key = lists.keys[at];
      float score = -INFINITY;
      if (first + lane < end && key <= pos) {
        score = capped(call.score_scale * product(q, k + key * d, d), call.score_cap);
        if (lists.log_weight != nullptr) score += lists.log_weight[at];
      }
      if (__all_sync(kAll, key > pos)) break;  // lists ascend
      running.add(
          score, d,
          [&](int i) { return v + static_cast<std::int64_t>(__shfl_sync(kAll, key, i)) * d; }, v);
    }
    if (lists.adds_own) add_range(call.pos_begin, pos);
  } else {
    const std::int64_t begin = call.window > 0 && pos + 1 > call.window ? pos + 1 - call.window : 0;
    add_range(begin, pos);
  }
  return running;
}

// kShares: the block's warps take the parts of one query; else each warp has a query of its own.
template <class T, int kEach, bool kShares>
__global__ void __launch_bounds__(kWarps * 32) any_kernel(AnyAttention call) {
  take_turn();
  __shared__ float queries[kWarps][kMostHead];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int t =
      kShares ? static_cast<int>(blockIdx.x) : static_cast<int>(blockIdx.x) * kWarps + warp;
  const int head = static_cast<int>(blockIdx.y);
  if (t >= call.n_tok) return;
  const int d = call.d_head;
  const int kv_head = head / (call.n_q / call.n_kv);
  const std::int64_t query = static_cast<std::int64_t>(head) * call.n_tok + t;
  float* q = queries[warp];
  for (int c = lane; c < d; c += 32)
    q[c] = static_cast<float>(static_cast<const T*>(call.q)[query * d + c]);
  __syncwarp();

  Running<kEach> running;
  if constexpr (kShares) {
    __shared__ float2 found[kParts];  // largest and total
    __shared__ float sums[kParts][32 * kEach];
    const Running<kEach> own = attend_part<T, kEach>(call, q, head, t, warp);
    if (lane == 0) found[warp] = make_float2(own.largest, own.total);
#pragma unroll
    for (int i = 0; i < kEach; ++i) sums[warp][channel_of(lane, i)] = own.sum[i];
    __syncthreads();
    if (warp > 0) return;
    for (int part = 0; part < kParts; ++part) {
      Running<kEach> other;
      other.largest = found[part].x;
      other.total = found[part].y;
#pragma unroll
      for (int i = 0; i < kEach; ++i) other.sum[i] = sums[part][channel_of(lane, i)];
      running.join(other);
    }
  } else {
    for (int part = 0; part < kParts; ++part)
      running.join(attend_part<T, kEach>(call, q, head, t, part));
  }

  const AnySummaries& summaries = call.summaries;
  const bool has_keys = running.largest > -INFINITY;
  float factor = 1.0f;
  if (call.sink_logits != nullptr && has_keys) {
    const float sink = call.sink_logits[head];
    const float best = fmaxf(running.largest, sink);
    factor = expf(running.largest - best);
    running.total = fmaf(running.total, factor, expf(sink - best));
    running.largest = best;
  }
  const float share = has_keys ? factor / running.total : 0.0f;
  float* out = call.out + (static_cast<std::int64_t>(t) * call.n_q + head) * d;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int c = channel_of(lane, i);
    if (c >= d) continue;
    float x = running.sum[i] * share;
    if (summaries.begin != nullptr && summaries.list_share != nullptr) {
      const float weight = summaries.list_share[query];
      x = weight * x + (1.0f - weight) * summaries.v[summaries.begin[kv_head] * d + c];
    }
    out[c] = x;
  }
  if (lane == 0) {
    const float lse = has_keys ? running.largest + logf(running.total) : -INFINITY;
    call.lse[query] = lse;
    const bool sees_nothing = call.lists.keys != nullptr && lse == -INFINITY;
    if (!isfinite(lse) && !sees_nothing)
      atomicMin(call.bad, call.first_code + static_cast<BadPlace>(t));
  }
}

template <class T, int kEach>
void start(const AnyAttention& call, StreamHandle stream) {
  constexpr int kEnoughBlocks = 2 * 132;  // two for each multiprocessor of an H100 or H200
  const int n_blocks = (call.n_tok + kWarps - 1) / kWarps;
  const bool shares = n_blocks * call.n_q < kEnoughBlocks;
  launch(stream, {{shares ? call.n_tok : n_blocks, call.n_q}, kWarps * 32},
         "start attention of any shape",
         shares ? any_kernel<T, kEach, true> : any_kernel<T, kEach, false>, call);
}

template <class T>
void start(const AnyAttention& call, StreamHandle stream) {
  if (call.d_head <= 64) return start<T, 2>(call, stream);
  if (call.d_head <= 128) return start<T, 4>(call, stream);
  start<T, 8>(call, stream);
}

}  // namespace

void attend_any(const AnyAttention& call, StreamHandle stream) {
  if (call.d_head < 2 || call.d_head > kMostHead || call.d_head % 2 != 0)
    throw ShapeError("attention on the GPU: expected an even d_head of at most 256, found " +
                     std::to_string(call.d_head));
  if (call.dtype == DType::bf16) {
    start<Bf16>(call, stream);
  } else {
    start<float>(call, stream);
  }
}

}  // namespace kvscope::gpu
