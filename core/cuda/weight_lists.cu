// One block per row of scores. The fewest weights that hold a share are found digit by digit of
// their bits, which are ordered as they are: a histogram of mass says in which value of a digit the
// share is reached, and only weights that begin so are looked at again.
#include "core/cuda/weight_lists.cuh"

#include "core/cuda/block_sums.cuh"
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

/// A row's weights over its largest one: of every kThreads-th key a thread has one. The first kHeld
/// rounds of them lie in registers, later ones are computed again whenever they are looked at.
template <int kHeld>
struct Weights {
  const float* scores;
  int n_keys;
  float largest;
  float held[kHeld];

  __device__ __forceinline__ Weights(const float* row, int n, float largest_score)
      : scores(row), n_keys(n), largest(largest_score) {
#pragma unroll
    for (int round = 0; round < kHeld; ++round) held[round] = computed(key_of(round));
  }
  static __device__ __forceinline__ int key_of(int round) {
    return round * kThreads + static_cast<int>(threadIdx.x);
  }
  /// -1 where there is no key.
  __device__ __forceinline__ float computed(int key) const {
    return key < n_keys ? expf(scores[key] - largest) : -1.0f;
  }
  /// visit(weight, key) by all threads at once, also those without a key in the last round.
  template <class Visit>
  __device__ __forceinline__ void each(const Visit& visit) const {
#pragma unroll
    for (int round = 0; round < kHeld; ++round) {
      if (round * kThreads < n_keys) visit(held[round], key_of(round));
    }
    for (int round = kHeld; round * kThreads < n_keys; ++round)
      visit(computed(key_of(round)), key_of(round));
  }
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

template <int kHeld>
__device__ Mass total_of(const Weights<kHeld>& weights, Memory& s) {
  Mass sum = 0;
  weights.each([&](float weight, int) { sum += weight > 0.0f ? mass_of(weight) : 0; });
  Mass all = 0;
  sum_before<kWarps>(sum, s.of_warp, &all);
  return all;
}

/// Where the fewest largest weights reach `target` units.
template <int kHeld>
__device__ Cut cut_at(const Weights<kHeld>& weights, Mass target, Memory& s) {
  const int thread = static_cast<int>(threadIdx.x);
  unsigned known = 0;  // digits of the threshold's bits
  Mass above = 0;      // of weights that begin with more
  Mass same = 0;       // of those that begin so
#pragma unroll
  for (int shift = 2 * kDigitBits; shift >= 0; shift -= kDigitBits) {
    s.mass_of_digit[thread] = 0;
    __syncthreads();
    weights.each([&](float weight, int) {
      const unsigned bits = __float_as_uint(weight);  // without a key it begins with the sign
      if (bits >> (shift + kDigitBits) == known)
        atomicAdd(&s.mass_of_digit[(bits >> shift) & (kDigits - 1)], mass_of(weight));
    });
    __syncthreads();
    // the first thread has the largest value of the digit
    const unsigned digit = kDigits - 1 - static_cast<unsigned>(thread);
    const Mass own = s.mass_of_digit[digit];
    Mass all = 0;
    const Mass before = above + sum_before<kWarps>(own, s.of_warp, &all);
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

template <int kHeld>
__global__ void __launch_bounds__(kThreads) weight_lists_kernel(WeightLists call) {
  take_turn();
  __shared__ Memory s;
  const int thread = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.y);
  const std::int64_t list = static_cast<std::int64_t>(row) * call.n_owners + blockIdx.x;
  const float* const scores = call.scores + list * call.stride;
  const int n_keys = call.n_keys - (call.n_rows - 1 - row);
  const Weights<kHeld> weights(scores, n_keys, largest_of(scores, n_keys, s));
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
  weights.each([&](float weight, int key) {
    bool stays = takes_mass ? weight > cut.threshold : static_cast<double>(weight) >= least;
    if (takes_mass) {
      const bool is_tied = weight == cut.threshold;
      int of_round = 0;
      const int rank = n_tied + sum_before<kWarps>(is_tied ? 1 : 0, s.counts_of_warp, &of_round);
      stays = stays || (is_tied && rank < cut.n_tied);
      n_tied += of_round;
    }
    int of_round = 0;
    const int at = n_kept + sum_before<kWarps>(stays ? 1 : 0, s.counts_of_warp, &of_round);
    if (stays) items[at] = key;
    n_kept += of_round;
  });
  if (thread == 0) call.counts[list] = n_kept;
}

}  // namespace

void make_weight_lists(const WeightLists& call, StreamHandle stream) {
  void (*kernel)(WeightLists) = weight_lists_kernel<32>;
  if (call.n_keys <= 16 * kThreads) kernel = weight_lists_kernel<16>;
  if (call.n_keys <= 8 * kThreads) kernel = weight_lists_kernel<8>;
  launch(stream, {{call.n_owners, call.n_rows}, kThreads}, "start the lists of the largest weights",
         kernel, call);
}

}  // namespace kvscope::gpu
