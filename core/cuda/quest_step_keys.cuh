// The attention in the kernel of quest_step.cu: tiles of listed keys and values, each for a warp.
#pragma once

#include "core/cuda/quest_step_block.cuh"

namespace kvscope::gpu {

/// The listed keys of a block, tile by tile, of one list after the other.
template <int kWidth>
struct ListedKeys {
  const Step<kWidth>& step;
  int n_items;
  int n_list_tiles;  // of a list, some without keys
  int n_tiles;       // of this block

  __device__ __forceinline__ ListedKeys(const Step<kWidth>& of, int n) : step(of), n_items(n) {
    n_list_tiles = ((n_items << log2_page()) + kTile - 1) / kTile;
    n_tiles = step.share_of(n_list_tiles * step.n_lists());
  }
  __device__ __forceinline__ int log2_page() const { return step.call.attention.list.log2_page; }

  /// A tile: its list, its first key among the list's, and its number of keys.
  struct Place {
    int list;
    int first;
    int n_keys;
  };
  __device__ __forceinline__ Place place_of(int i) const {
    Place place{0, step.tile_of(i), 0};
    for (; place.first >= n_list_tiles; ++place.list) place.first -= n_list_tiles;
    place.first *= kTile;
    // only the last page of a list, the last one of the cache, may have fewer keys
    const int end = (step.items_of(place.list)[n_items - 1] + 1) << log2_page();
    const int n_keys = (n_items << log2_page()) - max(end - step.n_context(), 0);
    place.n_keys = min(max(n_keys - place.first, 0), kTile);
    return place;
  }
  /// By a warp: keys and then values of the i-th tile set out.
  __device__ __forceinline__ void fetch(int i) const {
    constexpr int kRowBytes = 2 * kWidth;
    const int tile = step.n_box_tiles + i;
    const Place place = place_of(i);
    if (step.lane == 0) step.ring.announce(tile, place.n_keys * 2 * kRowBytes);
    __syncwarp();
    const int piece = min(kTile, 1 << log2_page());  // keys after each other
    const int at = step.lane * piece;
    const int n = min(piece, place.n_keys - at);
    if (n <= 0) return;
    const int index = place.first + at;
    const int pos = (step.items_of(place.list)[index >> log2_page()] << log2_page()) +
                    (index & ((1 << log2_page()) - 1));
    const std::int64_t from = static_cast<std::int64_t>(pos) * kWidth;
    step.ring.copy(tile, at * kRowBytes, step.rows_of(step.call.attention.k) + from, n * kRowBytes);
    step.ring.copy(tile, (kTile + at) * kRowBytes, step.rows_of(step.call.attention.v) + from,
                   n * kRowBytes);
  }
};

/// A warp's matrix of 8 x 8 16-bit numbers: lane l gives row l / 4, columns 2 (l % 4) and the next
/// one, and gets those of the transposed matrix.
__device__ __forceinline__ std::uint32_t transposed(std::uint32_t pair) {
  std::uint32_t to;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(to) : "r"(pair));
  return to;
}

/// What a warp found: products of probabilities and values, transposed. Lane (r, t) has heads 2 t
/// and 2 t + 1, and the kOwn channels from r * kOwn on: column u of product n is head 2 t + u of
/// channel n, and column 2 + u that of channel n + kOwn / 2.
template <int kWidth>
struct WarpSums {
  static constexpr int kOwn = kWidth / 8;
  static constexpr int kProducts = kOwn / 2;
  float sum[kProducts][4] = {};
  float largest[2] = {-INFINITY, -INFINITY};
  float total[2] = {};  // of the keys that this lane has
};

/// Keys as left factor, queries as right one; then values as left factor and probabilities as right
/// one: heads are columns, of which there are eight, and no row is empty.
template <int kWidth>
__device__ __forceinline__ void attend_tile(WarpSums<kWidth>& found, const Step<kWidth>& step,
                                            const ListedKeys<kWidth>& keys, int i,
                                            const uint4 (&q)[kWidth / 32]) {
  using Sums = WarpSums<kWidth>;
  constexpr int kChunks = kWidth / 32;
  constexpr int kRowBytes = 2 * kWidth;
  constexpr int kWords = Sums::kOwn / 2;  // of a lane's channels of a value
  const int tile = step.n_box_tiles + i;
  const auto place = keys.place_of(i);
  const int n_keys = place.n_keys;
  const float log2_scale = step.call.attention.log2_scale;
  const unsigned char* const stage = step.ring.at(tile);
  const int r = step.r;
  const int t = step.t;
  step.ring.wait(tile);

  float part[2][4] = {};  // two chains of products
  {
    uint4 low[kChunks];
    uint4 high[kChunks];
    load_chunks(low, stage + r * kRowBytes, t, r % 2 != 0);
    load_chunks(high, stage + (r + 8) * kRowBytes, t, r % 2 != 0);
#pragma unroll
    for (int j = 0; j < kChunks; ++j) {
      multiply_add(part[j % 2], low[j].x, high[j].x, low[j].y, high[j].y, q[j].x, q[j].y);
      multiply_add(part[j % 2], low[j].z, high[j].z, low[j].w, high[j].w, q[j].z, q[j].w);
    }
  }
  // values of keys 2 t, 2 t + 1, 2 t + 8, 2 t + 9
  std::uint32_t value[4][kWords];
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int key = 2 * t + n % 2 + n / 2 * 8;
    const unsigned char* const row = stage + (kTile + key) * kRowBytes + r * Sums::kOwn * 2;
    if constexpr (kWords == 8) {
      const bool is_odd = t % 2 != 0;  // as in load_chunks: all rows begin in the same bank
      const uint4 a = *reinterpret_cast<const uint4*>(row + (is_odd ? 16 : 0));
      const uint4 b = *reinterpret_cast<const uint4*>(row + (is_odd ? 0 : 16));
      const uint4 x = is_odd ? b : a;
      const uint4 y = is_odd ? a : b;
      value[n][0] = x.x, value[n][1] = x.y, value[n][2] = x.z, value[n][3] = x.w;
      value[n][4] = y.x, value[n][5] = y.y, value[n][6] = y.z, value[n][7] = y.w;
    } else {
      const uint4 x = *reinterpret_cast<const uint4*>(row);
      value[n][0] = x.x, value[n][1] = x.y, value[n][2] = x.z, value[n][3] = x.w;
    }
  }
  float score[4];  // keys r, r, r + 8, r + 8 of heads 2 t, 2 t + 1, 2 t, 2 t + 1
#pragma unroll
  for (int n = 0; n < 4; ++n) score[n] = part[0][n] + part[1][n];
  if (n_keys < kTile) {  // rows that were not copied hold anything
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      if (r + n / 2 * 8 >= n_keys) score[n] = -INFINITY;
      if (2 * t + n % 2 + n / 2 * 8 >= n_keys) {
#pragma unroll
        for (int w = 0; w < kWords; ++w) value[n][w] = 0;
      }
    }
  }
  if (step.n_lists() > 1) {  // the list is one head's
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      if (2 * t + n % 2 != place.list) score[n] = -INFINITY;
    }
  }
  __syncwarp();
  if (i + step.ring.n_stages < keys.n_tiles) keys.fetch(i + step.ring.n_stages);

#pragma unroll
  for (int u = 0; u < 2; ++u) {
    float best = fmaxf(score[u], score[2 + u]);
    best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, 4));
    best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, 8));
    best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, 16));
    best = fmaxf(best, found.largest[u]);
    const float origin = best == -INFINITY ? 0.0f : best * log2_scale;
    const float factor = exp2f(found.largest[u] * log2_scale - origin);
    found.largest[u] = best;
    score[u] = exp2f(score[u] * log2_scale - origin);
    score[2 + u] = exp2f(score[2 + u] * log2_scale - origin);
    found.total[u] = found.total[u] * factor + score[u] + score[2 + u];
#pragma unroll
    for (int n = 0; n < Sums::kProducts; ++n) {
      found.sum[n][u] *= factor;
      found.sum[n][2 + u] *= factor;
    }
  }
  const std::uint32_t p0 = transposed(pack(score[0], score[1]));
  const std::uint32_t p1 = transposed(pack(score[2], score[3]));
#pragma unroll
  for (int n = 0; n < Sums::kProducts; ++n) {
    // one channel of two neighbouring keys in one register
    const unsigned halves = n % 2 == 0 ? 0x5410u : 0x7632u;
    const int w = n / 2;
    multiply_add(found.sum[n], __byte_perm(value[0][w], value[1][w], halves),
                 __byte_perm(value[0][kWords / 2 + w], value[1][kWords / 2 + w], halves),
                 __byte_perm(value[2][w], value[3][w], halves),
                 __byte_perm(value[2][kWords / 2 + w], value[3][kWords / 2 + w], halves), p0, p1);
  }
}

/// A warp's findings to shared memory, sums to [kWarps][n_heads][kWidth].
template <int kWidth>
__device__ __forceinline__ void store_sums(WarpSums<kWidth>& found, const Step<kWidth>& step,
                                           float* sums) {
  constexpr int kOwn = WarpSums<kWidth>::kOwn;
  const int n_heads = step.call.attention.heads_per_list;
#pragma unroll
  for (int u = 0; u < 2; ++u) {
    float total = found.total[u];
    total += __shfl_xor_sync(0xffffffffu, total, 4);
    total += __shfl_xor_sync(0xffffffffu, total, 8);
    total += __shfl_xor_sync(0xffffffffu, total, 16);
    const int head = 2 * step.t + u;
    if (step.r == 0) {
      step.memory.warp_max[step.warp][head] = found.largest[u] * step.call.attention.log2_scale;
      step.memory.warp_total[step.warp][head] = total;
    }
    if (head >= n_heads) continue;
    float* const to = sums + (step.warp * n_heads + head) * kWidth + step.r * kOwn;
#pragma unroll
    for (int n = 0; n < kOwn / 2; n += 4) {
      *reinterpret_cast<float4*>(to + n) = make_float4(found.sum[n][u], found.sum[n + 1][u],
                                                       found.sum[n + 2][u], found.sum[n + 3][u]);
      *reinterpret_cast<float4*>(to + kOwn / 2 + n) =
          make_float4(found.sum[n][2 + u], found.sum[n + 1][2 + u], found.sum[n + 2][2 + u],
                      found.sum[n + 3][2 + u]);
    }
  }
}

}  // namespace kvscope::gpu
