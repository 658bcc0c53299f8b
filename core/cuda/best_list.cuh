// The k best of a row of scores: how many stay, where the cut lies, and the list. What the kernels
// share that make lists: one with a cluster per row of scores (top_lists.cu), one in the middle of
// a larger kernel (quest_step.cu).
//
// A histogram of equal buckets says in which bucket the cut lies; only its scores are ranked. What
// stays is written in order of position: blocks and warps count, and each starts where the ones
// before it end.
#pragma once

#include <cooperative_groups.h>

#include "core/cuda/block_sums.cuh"
#include "core/cuda/ptx.cuh"
#include "core/cuda/row_scores.cuh"
#include "core/cuda/top_lists.cuh"

namespace kvscope::gpu {

namespace cg = cooperative_groups;

constexpr int kQuads = 4;           // groups of four scores that a lane holds in registers
constexpr int kRun = kQuads * 128;  // consecutive scores that a warp holds

struct Limits {
  int n_scores;  // that compete
  int n_kept;    // of them
  int forced;    // an entry kept by rule, or -1

  /// Entries of the list.
  __device__ __forceinline__ int n_listed() const { return max(n_kept, 0) + (forced >= 0 ? 1 : 0); }
};

__device__ __forceinline__ Limits limits_of(const TopLists& call, int n_past) {
  if (!call.of_pages) return {n_past, min(call.budget, n_past), -1};
  using Rule = ListPlan::Pages;
  const int n_keys = n_past + 1;
  const int n_pages = (n_keys + call.page_size - 1) / call.page_size;
  const bool keeps_last = call.rule == Rule::kernel || call.rule == Rule::frontier;
  const int n_kept = pages_kept(call.rule, call.budget, call.page_size, n_keys, n_pages) -
                     (call.rule == Rule::kernel);
  const int n_scores = keeps_last ? n_pages - 1 : n_pages;
  return {n_scores, min(n_kept, n_scores), keeps_last ? n_pages - 1 : -1};
}

/// Unsigned numbers in the order of the scores; both zeros are one number.
__device__ __forceinline__ unsigned ordered(float score) {
  const unsigned bits = __float_as_uint(score == 0.0f ? 0.0f : score);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/// A score of the cut's bucket, and where it is.
struct Candidate {
  unsigned score;  // ordered()
  int position;
  /// True if it comes before `other`: the larger score, of equal ones the earlier.
  __device__ __forceinline__ bool beats(Candidate other) const {
    return score > other.score || (score == other.score && position < other.position);
  }
};

/// A block's memory for a cut. kMostCandidates: of the cut's bucket, of all blocks; more are
/// bisected.
template <int kThreads, int kMostCandidates>
struct CutMemory {
  static constexpr int kWarps = kThreads / 32;
  int counts[kBuckets];                   // of this block's scores
  Candidate candidates[kMostCandidates];  // of this block
  Candidate all_candidates[kMostCandidates];
  int n_candidates;
  float range[2];     // smallest and largest score of this block
  int n_at_least[2];  // bisection: of this block, for two steps in turn
  int n_sure;         // scores of this block that stay without a look at candidates
  int warp_sure[kWarps];
  float warp_low[kWarps];
  float warp_high[kWarps];
  int scratch[kWarps];
  int cut_bucket;
  int n_in_bucket;
  int n_above;    // scores in buckets above the cut's
  Candidate cut;  // the last one that stays
};

/// Buckets of a range that is not known beforehand, or of [-1, 1].
struct Buckets {
  float low;
  float per_unit;
  bool is_cosine;
  __device__ __forceinline__ int of(float score) const {
    if (is_cosine) return bucket_of_cosine(score);
    const int bucket = static_cast<int>((score - low) * per_unit);
    return bucket < 0 ? 0 : bucket >= kBuckets ? kBuckets - 1 : bucket;
  }
};

/// A warp's consecutive scores [begin, end), in registers where they fit: lane l has four after
/// each other at 4 l, 128 + 4 l, ... Longer runs are loaded again in every pass.
struct Run {
  const float* scores;
  int begin;
  int end;
  float4 held[kQuads];

  __device__ __forceinline__ int n_rounds() const { return (end - begin + kRun - 1) / kRun; }
  __device__ __forceinline__ int first_of(int round, int quad) const {
    return begin + round * kRun + quad * 128 + static_cast<int>(threadIdx.x) % 32 * 4;
  }
  __device__ __forceinline__ void load(int round) {
#pragma unroll
    for (int quad = 0; quad < kQuads; ++quad) {
      const int first = first_of(round, quad);
      // rows have a multiple of four places: the last four may be read past `end`
      if (first < end) held[quad] = *reinterpret_cast<const float4*>(scores + first);
    }
  }
  __device__ __forceinline__ float value(int quad, int i) const {
    return i == 0 ? held[quad].x : i == 1 ? held[quad].y : i == 2 ? held[quad].z : held[quad].w;
  }
  /// visit(score, position) for each score of this lane.
  template <class Visit>
  __device__ __forceinline__ void each(const Visit& visit) {
    for (int round = 0; round < n_rounds(); ++round) {
      if (n_rounds() > 1) load(round);
#pragma unroll
      for (int quad = 0; quad < kQuads; ++quad) {
        const int first = first_of(round, quad);
        if (first >= end) break;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (first + i < end) visit(value(quad, i), first + i);
        }
      }
    }
  }
};

/// A block's own copy of shared memory, among the blocks that share a row of scores. One block is
/// meant alone, whatever cluster it belongs to.
template <class T>
__device__ __forceinline__ T* in_block(cg::cluster_group& cluster, int n_blocks, T* own, int b) {
  return n_blocks == 1 ? own : cluster.map_shared_rank(own, b);
}

/// The barrier of all blocks that share a row of scores.
__device__ __forceinline__ void sync_all(cg::cluster_group& cluster, int n_blocks) {
  if (n_blocks > 1) {
    cluster.sync();
  } else {
    __syncthreads();
  }
}

/// Counts this block's scores in s.counts, over the range of all blocks' scores.
template <int kThreads, int kMostCandidates>
__device__ Buckets count_buckets(CutMemory<kThreads, kMostCandidates>& s,
                                 cg::cluster_group& cluster, int n_blocks, Run& run) {
  const int thread = static_cast<int>(threadIdx.x);
  float low = INFINITY;
  float high = -INFINITY;
  run.each([&](float score, int) {
    low = fminf(low, score);
    high = fmaxf(high, score);
  });
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    low = fminf(low, __shfl_xor_sync(0xffffffffu, low, step));
    high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, step));
  }
  if (thread % 32 == 0) s.warp_low[thread / 32] = low, s.warp_high[thread / 32] = high;
  for (int i = thread; i < kBuckets; i += kThreads) s.counts[i] = 0;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) {
    low = fminf(low, s.warp_low[w]);
    high = fmaxf(high, s.warp_high[w]);
  }
  if (n_blocks > 1) {
    if (thread == 0) s.range[0] = low, s.range[1] = high;
    cluster.sync();
    for (int b = 0; b < n_blocks; ++b) {
      low = fminf(low, cluster.map_shared_rank(s.range, b)[0]);
      high = fmaxf(high, cluster.map_shared_rank(s.range, b)[1]);
    }
  }
  Buckets buckets{low, 0.0f, false};
  const float width = high - low;
  const float per_unit = static_cast<float>(kBuckets - 1) / width;
  if (width > 0.0f && isfinite(width) && isfinite(per_unit)) buckets.per_unit = per_unit;
  run.each([&](float score, int) { atomicAdd(&s.counts[buckets.of(score)], 1); });
  sync_all(cluster, n_blocks);
  return buckets;
}

/// The bucket in which the n_kept largest scores of all blocks end.
template <int kThreads, int kMostCandidates>
__device__ Buckets find_bucket(CutMemory<kThreads, kMostCandidates>& s, cg::cluster_group& cluster,
                               int n_blocks, Run& run, int n_kept, const std::int32_t* histogram) {
  const int thread = static_cast<int>(threadIdx.x);
  Buckets buckets{0.0f, 0.0f, true};
  if (histogram == nullptr) buckets = count_buckets(s, cluster, n_blocks, run);
  // buckets from the best one down, some for each thread
  constexpr int kEach = kBuckets / kThreads;
  int own[kEach];
  int sum = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int bucket = kBuckets - 1 - thread * kEach - i;
    own[i] = 0;
    if (histogram != nullptr) {
      own[i] = histogram[bucket];
    } else if (n_blocks == 1) {
      own[i] = s.counts[bucket];
    } else {
      for (int b = 0; b < n_blocks; ++b) own[i] += cluster.map_shared_rank(s.counts, b)[bucket];
    }
    sum += own[i];
  }
  const int inclusive = warp_inclusive(sum);
  if (thread % 32 == 31) s.scratch[thread / 32] = inclusive;
  __syncthreads();
  constexpr int kWarps = kThreads / 32;
  const int of_warp = thread % 32 < kWarps ? s.scratch[thread % 32] : 0;
  int before = warp_sum(thread % 32 < thread / 32 ? of_warp : 0) + inclusive - sum;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (before < n_kept && n_kept <= before + own[i]) {
      s.cut_bucket = kBuckets - 1 - thread * kEach - i;
      s.n_in_bucket = own[i];
      s.n_above = before;
    }
    before += own[i];
  }
  __syncthreads();
  return buckets;
}

/// All blocks' candidates, and which of them is the last one that stays.
template <int kThreads, int kMostCandidates>
__device__ int rank_candidates(CutMemory<kThreads, kMostCandidates>& s, cg::cluster_group& cluster,
                               int n_blocks, int n_wanted) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int kWarps = kThreads / 32;
  // lanes ask all blocks at once how many there are
  const int n_of_block = lane < n_blocks ? *in_block(cluster, n_blocks, &s.n_candidates, lane) : 0;
  const int until = warp_inclusive(n_of_block);
  const int n_all = __shfl_sync(0xffffffffu, until, 31);
  for (int b = 0; b < n_blocks; ++b) {
    const int n = __shfl_sync(0xffffffffu, n_of_block, b);
    const int first = __shfl_sync(0xffffffffu, until, b) - n;
    const Candidate* const from = in_block(cluster, n_blocks, s.candidates, b);
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads)
      s.all_candidates[first + i] = from[i];
  }
  __syncthreads();
  for (int i = warp; i < n_all; i += kWarps) {
    const Candidate own = s.all_candidates[i];
    int n_better = 0;
    for (int j = lane; j < n_all; j += 32) n_better += s.all_candidates[j].beats(own) ? 1 : 0;
    n_better = __reduce_add_sync(0xffffffffu, n_better);
    if (lane == 0 && n_better == n_wanted - 1) s.cut = own;
  }
  __syncthreads();
  return n_all;
}

/// Crowded scores: the last one that stays, bit by bit of a number that orders scores and, among
/// equal ones, positions.
template <int kThreads, int kMostCandidates>
__device__ void bisect(CutMemory<kThreads, kMostCandidates>& s, cg::cluster_group& cluster,
                       int n_blocks, Run& run, int n_kept) {
  constexpr unsigned kLastPosition = 0x7fffffffu;
  const int thread = static_cast<int>(threadIdx.x);
  std::uint64_t cut = 0;  // the largest number that n_kept entries reach
  for (int bit = 63; bit >= 0; --bit) {
    const std::uint64_t tried = cut | std::uint64_t{1} << bit;
    int n = 0;
    run.each([&](float score, int position) {
      const std::uint64_t own =
          std::uint64_t{ordered(score)} << 32 | (kLastPosition - static_cast<unsigned>(position));
      n += own >= tried ? 1 : 0;
    });
    n = warp_sum(n);
    __syncthreads();
    if (thread % 32 == 0) s.scratch[thread / 32] = n;
    __syncthreads();
    if (thread == 0) {
      n = 0;
      for (int w = 0; w < kThreads / 32; ++w) n += s.scratch[w];
      s.n_at_least[bit % 2] = n;
    }
    sync_all(cluster, n_blocks);
    int whole = 0;
    for (int b = 0; b < n_blocks; ++b)
      whole += in_block(cluster, n_blocks, s.n_at_least, b)[bit % 2];
    if (whole >= n_kept) cut = tried;
  }
  if (thread == 0) {
    s.cut = {static_cast<unsigned>(cut >> 32),
             static_cast<int>(kLastPosition - static_cast<unsigned>(cut))};
  }
}

/// The run of this thread's warp, of a block's share [begin, end) of a row.
template <int kThreads>
__device__ __forceinline__ Run run_of_warp(const float* scores, int begin, int end) {
  constexpr int kWarps = kThreads / 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int piece = ((end - begin + kWarps - 1) / kWarps + 127) / 128 * 128;
  Run run;
  run.scores = scores;
  run.begin = min(begin + warp * piece, end);
  run.end = min(run.begin + piece, end);
  return run;
}

/// By one thread, before a barrier and write_best().
template <int kThreads, int kMostCandidates>
__device__ __forceinline__ void begin_cut(CutMemory<kThreads, kMostCandidates>& s,
                                          const Limits& limits) {
  s.n_candidates = 0;
  // nothing or everything stays: no score has these bits
  s.cut = {limits.n_kept <= 0 ? 0xffffffffu : 0u, -1};
}

/// Writes the scores that stay, ascending, and the entry kept by rule behind them, into `items`
/// which all blocks share. Blocks have consecutive shares of the row; runs are loaded. All threads
/// call it.
template <int kThreads, int kMostCandidates>
__device__ __forceinline__ void write_best(CutMemory<kThreads, kMostCandidates>& s,
                                           cg::cluster_group& cluster, int n_blocks, int rank,
                                           Run& run, const Limits& limits,
                                           const std::int32_t* histogram, std::int32_t* items) {
  constexpr int kWarps = kThreads / 32;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  bool has_candidates = false;
  Buckets buckets{0.0f, 0.0f, true};
  if (limits.n_kept > 0 && limits.n_kept < limits.n_scores) {
    buckets = find_bucket(s, cluster, n_blocks, run, limits.n_kept, histogram);
    has_candidates = s.n_in_bucket <= kMostCandidates;
    if (!has_candidates) bisect(s, cluster, n_blocks, run, limits.n_kept);
  }
  __syncthreads();

  // count first: each warp and block starts where the ones before it end
  int n_sure = 0;
  if (has_candidates) {
    const int cut_bucket = s.cut_bucket;
    run.each([&](float score, int position) {
      const int bucket = buckets.of(score);
      n_sure += bucket > cut_bucket ? 1 : 0;
      if (bucket == cut_bucket)
        s.candidates[atomicAdd(&s.n_candidates, 1)] = {ordered(score), position};
    });
  } else {
    const Candidate cut = s.cut;
    run.each([&](float score, int position) {
      n_sure += cut.beats({ordered(score), position}) ? 0 : 1;
    });
  }
  n_sure = warp_sum(n_sure);
  if (lane == 0) {
    s.warp_sure[warp] = n_sure;
  }
  __syncthreads();
  const int of_warp = lane < kWarps ? s.warp_sure[lane] : 0;
  if (n_blocks > 1) {
    const int of_block = warp_sum(of_warp);
    if (thread == 0) s.n_sure = of_block;
    cluster.sync();
  }
  int n_before = lane < warp ? of_warp : 0;
  if (n_blocks > 1 && lane < rank) n_before += *cluster.map_shared_rank(&s.n_sure, lane);
  if (has_candidates) {
    const int n_all = rank_candidates(s, cluster, n_blocks, limits.n_kept - s.n_above);
    const Candidate cut = s.cut;
    for (int i = lane; i < n_all; i += 32) {
      const Candidate x = s.all_candidates[i];
      n_before += x.position < run.begin && !cut.beats(x) ? 1 : 0;
    }
  }
  if (n_blocks > 1) cluster.barrier_arrive();  // no more reads of other blocks' memory
  n_before = warp_sum(n_before);
  const Candidate cut = s.cut;
  for (int round = 0; round < run.n_rounds(); ++round) {
    if (run.n_rounds() > 1) run.load(round);
#pragma unroll
    for (int quad = 0; quad < kQuads; ++quad) {
      const int first = run.first_of(round, quad);
      if (first - lane * 4 >= run.end) break;  // the whole warp
      bool stays[4];
      int n = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        stays[i] = first + i < run.end && !cut.beats({ordered(run.value(quad, i)), first + i});
        n += stays[i] ? 1 : 0;
      }
      const int inclusive = warp_inclusive(n);
      int at = n_before + inclusive - n;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (stays[i]) items[at++] = first + i;
      }
      n_before += __shfl_sync(0xffffffffu, inclusive, 31);
    }
  }
  if (rank == 0 && thread == 0 && limits.forced >= 0) items[max(limits.n_kept, 0)] = limits.forced;
  if (n_blocks > 1) cluster.barrier_wait();  // nobody ends while its memory is read
}

}  // namespace kvscope::gpu
