// The k best of a row of scores in shared memory, by one block in the middle of a kernel. Like
// best_list.cuh, with less to wait for: a thread has consecutive scores, so that one sum over the
// threads before it says where its part of the list begins, and all loops are short code.
#pragma once

#include "core/cuda/best_list.cuh"

namespace kvscope::gpu {

constexpr int kShortBuckets = 1024;

/// The score that ordered() made a number of.
__device__ __forceinline__ float score_of(unsigned number) {
  return __uint_as_float(number & 0x80000000u ? number ^ 0x80000000u : ~number);
}

/// visit(score, position) for a thread's consecutive scores [begin, end); begin at a multiple of
/// four, and the last four may be read past `end`.
template <class Visit>
__device__ __forceinline__ void each_score(const float* scores, int begin, int end,
                                           const Visit& visit) {
#pragma unroll 1
  for (int first = begin; first < end; first += 4) {
    const float4 x = *reinterpret_cast<const float4*>(scores + first);
    visit(x.x, first);
    if (first + 1 < end) visit(x.y, first + 1);
    if (first + 2 < end) visit(x.z, first + 2);
    if (first + 3 < end) visit(x.w, first + 3);
  }
}

/// The sum of x over the threads before this one. s.scratch: nobody reads it at the call.
template <int kThreads, int kMostCandidates>
__device__ __forceinline__ int sum_before(CutMemory<kThreads, kMostCandidates>& s, int x) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int inclusive = warp_inclusive(x);
  if (threadIdx.x % 32 == 31) s.scratch[warp] = inclusive;
  __syncthreads();
  int before = inclusive - x;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) before += w < warp ? s.scratch[w] : 0;
  return before;
}

/// Writes the scores that stay, ascending, and the entry kept by rule behind them, as write_best().
/// All threads call it, and `items` is there after the next barrier.
template <int kThreads, int kMostCandidates>
__device__ __forceinline__ void write_short_list(CutMemory<kThreads, kMostCandidates>& s,
                                                 cg::cluster_group& cluster, const float* scores,
                                                 const Limits& limits, std::int32_t* items) {
  constexpr int kWarps = kThreads / 32;
  constexpr int kEach = kShortBuckets / kThreads;
  static_assert(kEach == 4 && kShortBuckets <= kBuckets);
  const int thread = static_cast<int>(threadIdx.x);
  const int n = limits.n_scores;
  const int each = ((n + kThreads - 1) / kThreads + 3) / 4 * 4;
  const int begin = min(thread * each, n);
  const int end = min(begin + each, n);
  if (thread == 0) begin_cut(s, limits);
  if (limits.n_kept > 0 && limits.n_kept < n) {
    float low = INFINITY;
    float high = -INFINITY;
    each_score(scores, begin, end, [&](float score, int) {
      low = fminf(low, score);
      high = fmaxf(high, score);
    });
    low = score_of(__reduce_min_sync(0xffffffffu, ordered(low)));
    high = score_of(__reduce_max_sync(0xffffffffu, ordered(high)));
    if (thread % 32 == 0) s.warp_low[thread / 32] = low, s.warp_high[thread / 32] = high;
    *reinterpret_cast<int4*>(s.counts + thread * kEach) = make_int4(0, 0, 0, 0);
    __syncthreads();
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      low = fminf(low, s.warp_low[w]);
      high = fmaxf(high, s.warp_high[w]);
    }
    const float width = high - low;
    float per_unit = static_cast<float>(kShortBuckets - 1) / width;
    if (!(width > 0.0f && isfinite(width) && isfinite(per_unit))) per_unit = 0.0f;
    // buckets from the best one down
    const auto bucket_of = [&](float score) {
      const int bucket = static_cast<int>((high - score) * per_unit);
      return min(max(bucket, 0), kShortBuckets - 1);
    };
    each_score(scores, begin, end,
               [&](float score, int) { atomicAdd(s.counts + bucket_of(score), 1); });
    __syncthreads();
    const int4 own = *reinterpret_cast<const int4*>(s.counts + thread * kEach);
    const int counts[kEach] = {own.x, own.y, own.z, own.w};
    int before = sum_before(s, own.x + own.y + own.z + own.w);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (before < limits.n_kept && limits.n_kept <= before + counts[i]) {
        s.cut_bucket = thread * kEach + i;
        s.n_in_bucket = counts[i];
        s.n_above = before;
      }
      before += counts[i];
    }
    __syncthreads();
    if (s.n_in_bucket > kMostCandidates) {
      Run run = run_of_warp<kThreads>(scores, 0, n);
      run.load(0);
      bisect(s, cluster, /*n_blocks=*/1, run, limits.n_kept);
    } else {
      const int cut_bucket = s.cut_bucket;
      each_score(scores, begin, end, [&](float score, int position) {
        if (bucket_of(score) == cut_bucket)
          s.candidates[atomicAdd(&s.n_candidates, 1)] = {ordered(score), position};
      });
      __syncthreads();
      const int n_candidates = s.n_candidates;
      const int n_better_than_last = limits.n_kept - s.n_above - 1;
      for (int i = thread; i < n_candidates; i += kThreads) {
        const Candidate candidate = s.candidates[i];
        int n_better = 0;
        for (int j = 0; j < n_candidates; ++j) n_better += s.candidates[j].beats(candidate) ? 1 : 0;
        if (n_better == n_better_than_last) s.cut = candidate;
      }
    }
  }
  __syncthreads();
  const Candidate cut = s.cut;
  int n_own = 0;
  const auto stays = [&](float score, int position) {
    return !cut.beats({ordered(score), position});
  };
  each_score(scores, begin, end,
             [&](float score, int position) { n_own += stays(score, position) ? 1 : 0; });
  int at = sum_before(s, n_own);
  if (n_own > 0) {
    each_score(scores, begin, end, [&](float score, int position) {
      if (stays(score, position)) items[at++] = position;
    });
  }
  if (thread == 0 && limits.forced >= 0) items[max(limits.n_kept, 0)] = limits.forced;
}

}  // namespace kvscope::gpu
