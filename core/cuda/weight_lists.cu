// One block per row of scores. The fewest weights that hold a share are found digit by digit of
// their bits, which are ordered as they are: a histogram of mass says in which value of a digit the
// share is reached, and only weights that begin so are looked at again.
#include "core/cuda/weight_lists.cuh"

#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"

namespace kvscope::gpu {

namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kDigitBits = 10;  // three of them: weights are at most 1, so that 30 bits hold them
constexpr int kDigits = 1 << kDigitBits;
static_assert(kDigits == kThreads, "a thread per value of a digit");
constexpr float kUnits = 1099511627776.0f;  // of a weight of 1: 2^40

using Mass = unsigned long long;

__device__ __forceinline__ Mass mass_of(float weight) {
  return static_cast<Mass>(weight * kUnits);
}

/// Sums over the threads before this one, of the threads in order; *all: of all threads.
template <class T>
__device__ T sum_before(T x, T* of_warp, T* all) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  T inclusive = x;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const T y = __shfl_up_sync(0xffffffffu, inclusive, step);
    if (lane >= step) inclusive += y;
  }
  __syncthreads();  // the sums before these have been read
  if (lane == 31) of_warp[warp] = inclusive;
  __syncthreads();
  T before = 0;
  T total = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w == warp) before = total;
    total += of_warp[w];
  }
  *all = total;
  return before + inclusive - x;
}

struct Memory {
  Mass mass_of_digit[kDigits];
  Mass of_warp[kWarps];
  int counts_of_warp[kWarps];
  float largest[kWarps];
  unsigned digit;
  Mass above;
};

/// What stays: weights above `threshold`, and the first n_tied of those that equal it.
struct Cut {
  float threshold;
  int n_tied;
};

/// A row's weights over its largest one.
struct Weights {
  const float* scores;
  int n_keys;
  float largest;
  __device__ __forceinline__ float of(int key) const { return expf(scores[key] - largest); }
};

__device__ float largest_of(const float* scores, int n_keys, Memory& s) {
  float largest = -INFINITY;
  for (int i = static_cast<int>(threadIdx.x); i < n_keys; i += kThreads)
    largest = fmaxf(largest, scores[i]);
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
  if (threadIdx.x % 32 == 0) s.largest[threadIdx.x / 32] = largest;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, s.largest[w]);
  return largest;
}

__device__ Mass total_of(const Weights& weights, Memory& s) {
  Mass sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < weights.n_keys; i += kThreads)
    sum += mass_of(weights.of(i));
  Mass all = 0;
  sum_before(sum, s.of_warp, &all);
  return all;
}

/// Where the fewest largest weights reach `target` units.
__device__ Cut cut_at(const Weights& weights, Mass target, Memory& s) {
  const int thread = static_cast<int>(threadIdx.x);
  unsigned known = 0;  // digits of the threshold's bits
  Mass above = 0;      // of weights that begin with more
  Mass same = 0;       // of those that begin so
#pragma unroll
  for (int shift = 2 * kDigitBits; shift >= 0; shift -= kDigitBits) {
    s.mass_of_digit[thread] = 0;
    __syncthreads();
    for (int i = thread; i < weights.n_keys; i += kThreads) {
      const float weight = weights.of(i);
      const unsigned bits = __float_as_uint(weight);
      if (bits >> (shift + kDigitBits) == known)
        atomicAdd(&s.mass_of_digit[(bits >> shift) & (kDigits - 1)], mass_of(weight));
    }
    __syncthreads();
    // the first thread has the largest value of the digit
    const unsigned digit = kDigits - 1 - static_cast<unsigned>(thread);
    const Mass own = s.mass_of_digit[digit];
    Mass all = 0;
    const Mass before = above + sum_before(own, s.of_warp, &all);
    if (before < target && target <= before + own) s.digit = digit, s.above = before;
    __syncthreads();
    known = known << kDigitBits | s.digit;
    above = s.above;
    same = s.mass_of_digit[s.digit];
    __syncthreads();
  }
  const float threshold = __uint_as_float(known);
  const Mass of_one = same > 0 ? mass_of(threshold) : 1;
  return {threshold, static_cast<int>((target - above + of_one - 1) / of_one)};
}

__global__ void __launch_bounds__(kThreads) weight_lists_kernel(WeightLists call) {
  take_turn();
  __shared__ Memory s;
  const int thread = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.y);
  const std::int64_t list = static_cast<std::int64_t>(row) * call.n_owners + blockIdx.x;
  const float* const scores = call.scores + list * call.stride;
  const int n_keys = call.n_keys - (call.n_rows - 1 - row);
  const Weights weights{scores, n_keys, largest_of(scores, n_keys, s)};
  const Mass total = total_of(weights, s);
  const bool takes_mass = call.mass > 0.0;
  // in one thread's numbers all threads': nothing here depends on the thread
  const double least = call.least_weight * static_cast<double>(total) / kUnits;
  Cut cut{0.0f, 0};
  if (takes_mass) {
    const auto target = static_cast<Mass>(ceil(call.mass * static_cast<double>(total)));
    cut = cut_at(weights, max(Mass{1}, min(target, total)), s);
  }

  std::int32_t* const items = call.items + list * call.item_stride;
  int n_kept = 0;
  int n_tied = 0;  // before this round, of those that equal the threshold
  for (int first = 0; first < n_keys; first += kThreads) {
    const int key = first + thread;
    const float weight = key < n_keys ? weights.of(key) : -1.0f;
    const bool is_tied = takes_mass && weight == cut.threshold;
    bool stays = takes_mass ? weight > cut.threshold : static_cast<double>(weight) >= least;
    if (takes_mass) {
      int of_round = 0;
      const int rank = n_tied + sum_before(is_tied ? 1 : 0, s.counts_of_warp, &of_round);
      stays = stays || (is_tied && rank < cut.n_tied);
      n_tied += of_round;
    }
    int of_round = 0;
    const int at = n_kept + sum_before(stays ? 1 : 0, s.counts_of_warp, &of_round);
    if (stays) items[at] = key;
    n_kept += of_round;
  }
  if (thread == 0) call.counts[list] = n_kept;
}

}  // namespace

void make_weight_lists(const WeightLists& call, StreamHandle stream) {
  Launch how;
  how.grid = dim3(static_cast<unsigned>(call.n_owners), static_cast<unsigned>(call.n_rows));
  how.threads = kThreads;
  launch(stream, how, "start the lists of the largest weights", weight_lists_kernel, call);
}

}  // namespace kvscope::gpu
