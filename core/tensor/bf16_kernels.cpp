// Compiled alone: functions with target attributes. No -m flag: this file's other code
// must run everywhere.
#include "core/tensor/bf16_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/base/error.hpp"
#include "core/tensor/dtype.hpp"

#if defined(__x86_64__) && defined(__linux__)
#define KVSCOPE_HAS_X86_BF16 1
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#define KVSCOPE_HAS_X86_BF16 0
#endif

namespace kvscope {

namespace {

constexpr Index kTile = 16;       // rows of a tile of weights, and lanes of a tile of activations
constexpr Index kTileDepth = 32;  // values of k in a tile
// Values of k per pass: 32 rows, and a lane block, stay in the first-level cache.
constexpr Index kDepth = 512;

Index padded(Index k) {
  return (k + kTileDepth - 1) / kTileDepth * kTileDepth;
}

#if KVSCOPE_HAS_X86_BF16

bool has_avx512_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & (1u << 5)) != 0;
}

// The processor has AMX-BF16 and the kernel lets this process use the tile registers.
bool request_amx() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  const bool has_tiles = (d & (1u << 24)) != 0 && (d & (1u << 22)) != 0;  // AMX-TILE, AMX-BF16
  return has_tiles && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// y rows start as their bias; both kernels then add to y.
void start_with_bias(const float* bias, Index n_rows, float* y, Index lanes) {
  for (Index r = 0; r < n_rows; ++r) {
    std::fill_n(y + r * lanes, lanes, bias == nullptr ? 0.0f : bias[r]);
  }
}

#define KVSCOPE_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512bf16")))

template <int kRows, int kVecs>
KVSCOPE_AVX512_BF16 void add_pair_rows(const std::uint16_t* w, Index ldw, Index k,
                                       const std::uint16_t* pairs, float* y, Index lanes) {
  __m512 acc[kRows][kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int j = 0; j < kVecs; ++j) acc[r][j] = _mm512_loadu_ps(y + r * lanes + j * kTile);
  }
  for (Index i = 0; i < k; i += 2) {
    __m512bh x[kVecs];
#pragma GCC unroll 2
    for (int j = 0; j < kVecs; ++j) {
      x[j] = (__m512bh)_mm512_loadu_si512(pairs + i * lanes + 2 * j * kTile);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      int pair = w[r * ldw + i];
      if (i + 1 < k) __builtin_memcpy(&pair, w + r * ldw + i, 4);
      const auto weights = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 2
      for (int j = 0; j < kVecs; ++j) acc[r][j] = _mm512_dpbf16_ps(acc[r][j], weights, x[j]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int j = 0; j < kVecs; ++j) _mm512_storeu_ps(y + r * lanes + j * kTile, acc[r][j]);
  }
}

template <int kVecs>
void avx512_columns(const std::uint16_t* w, Index ldw, Index n_rows, Index k,
                    const std::uint16_t* pairs, float* y, Index lanes) {
  // An even part and, for odd k, its last value: the loop then has no branch.
  const Index even = k / 2 * 2;
  Index r = 0;
  for (; r + 8 <= n_rows; r += 8) {
    add_pair_rows<8, kVecs>(w + r * ldw, ldw, even, pairs, y + r * lanes, lanes);
  }
  for (; r < n_rows; ++r) {
    add_pair_rows<1, kVecs>(w + r * ldw, ldw, even, pairs, y + r * lanes, lanes);
  }
  for (r = 0; even < k && r < n_rows; ++r) {
    add_pair_rows<1, kVecs>(w + r * ldw + even, ldw, 1, pairs + even * lanes, y + r * lanes, lanes);
  }
}

void avx512_matmul(const std::uint16_t* w, Index ldw, Index n_rows, Index k,
                   const std::uint16_t* pairs, float* y, Index lanes) {
  Index j = 0;
  for (; j + 2 * kTile <= lanes; j += 2 * kTile) {
    avx512_columns<2>(w, ldw, n_rows, k, pairs + 2 * j, y + j, lanes);
  }
  for (; j < lanes; j += kTile) avx512_columns<1>(w, ldw, n_rows, k, pairs + 2 * j, y + j, lanes);
}

struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

#define KVSCOPE_AMX __attribute__((target("amx-tile,amx-bf16")))

// Tile loads do not tell the compiler which memory they read: what was written must be
// there before them.
inline void finish_writes() {
  __asm__ volatile("" ::: "memory");
}

// Weights as tiles of 16 rows by 32 values: rows, steps along k and tiles of rows are so
// many values apart.
struct TiledWeights {
  const std::uint16_t* data;
  Index row, step, tile;

  const std::uint16_t* at(Index i_tile, Index i_step) const {
    return data + i_tile * tile + i_step * step;
  }
};

// 32 rows by 32 lanes: tiles 0 to 3 are sums, 4 and 5 weights, 6 and 7 activations.
template <bool kFromZero>
KVSCOPE_AMX void amx_add_2x2(TiledWeights w, Index n_steps, const std::uint16_t* pairs, float* y,
                             Index lanes) {
  float* y1 = y + kTile * lanes;
  finish_writes();
  if constexpr (kFromZero) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, y, lanes * 4);
    _tile_loadd(1, y + kTile, lanes * 4);
    _tile_loadd(2, y1, lanes * 4);
    _tile_loadd(3, y1 + kTile, lanes * 4);
  }
  for (Index i = 0; i < n_steps; ++i) {
    const std::uint16_t* x = pairs + i * kTileDepth * lanes;
    _tile_loadd(4, w.at(0, i), w.row * 2);
    _tile_loadd(6, x, lanes * 4);
    _tile_loadd(7, x + 2 * kTile, lanes * 4);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, w.at(1, i), w.row * 2);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, y, lanes * 4);
  _tile_stored(1, y + kTile, lanes * 4);
  _tile_stored(2, y1, lanes * 4);
  _tile_stored(3, y1 + kTile, lanes * 4);
}

// 32 rows by 16 lanes.
template <bool kFromZero>
KVSCOPE_AMX void amx_add_2x1(TiledWeights w, Index n_steps, const std::uint16_t* pairs, float* y,
                             Index lanes) {
  float* y1 = y + kTile * lanes;
  finish_writes();
  if constexpr (kFromZero) {
    _tile_zero(0);
    _tile_zero(2);
  } else {
    _tile_loadd(0, y, lanes * 4);
    _tile_loadd(2, y1, lanes * 4);
  }
  for (Index i = 0; i < n_steps; ++i) {
    _tile_loadd(6, pairs + i * kTileDepth * lanes, lanes * 4);
    _tile_loadd(4, w.at(0, i), w.row * 2);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, w.at(1, i), w.row * 2);
    _tile_dpbf16ps(2, 5, 6);
  }
  _tile_stored(0, y, lanes * 4);
  _tile_stored(2, y1, lanes * 4);
}

// 16 rows by 16 lanes.
template <bool kFromZero>
KVSCOPE_AMX void amx_add_1x1(TiledWeights w, Index n_steps, const std::uint16_t* pairs, float* y,
                             Index lanes) {
  finish_writes();
  if constexpr (kFromZero) {
    _tile_zero(0);
  } else {
    _tile_loadd(0, y, lanes * 4);
  }
  for (Index i = 0; i < n_steps; ++i) {
    _tile_loadd(6, pairs + i * kTileDepth * lanes, lanes * 4);
    _tile_loadd(4, w.at(0, i), w.row * 2);
    _tile_dpbf16ps(0, 4, 6);
  }
  _tile_stored(0, y, lanes * 4);
}

// y += w x; or, from zero, y = w x.
template <bool kFromZero = false>
void amx_add(TiledWeights w, Index n_tiles, Index n_steps, const std::uint16_t* pairs, float* y,
             Index lanes) {
  for (Index i = 0; i < n_tiles; i += 2) {
    const bool is_pair = i + 2 <= n_tiles;
    for (Index j = 0; j < lanes;) {
      const bool is_wide = is_pair && j + 2 * kTile <= lanes;
      const auto add = is_wide   ? amx_add_2x2<kFromZero>
                       : is_pair ? amx_add_2x1<kFromZero>
                                 : amx_add_1x1<kFromZero>;
      TiledWeights rows = w;
      rows.data = w.at(i, 0);
      add(rows, n_steps, pairs + 2 * j, y + i * kTile * lanes + j, lanes);
      j += is_wide ? 2 * kTile : kTile;
    }
  }
}

KVSCOPE_AMX void amx_start() {
  // In memory as a whole: the intrinsic names its first bytes only.
  static constexpr TileConfig config;
  _tile_loadconfig(&config);
}
KVSCOPE_AMX void amx_stop() {
  _tile_release();
}

// Tiles one after another, [n_tiles][n_steps][16][32]: rows that are a power of two apart would
// share cache sets.
TiledWeights pack(const std::uint16_t* w, Index ldw, Index n_tiles, Index n_steps,
                  std::uint16_t* packed) {
  for (Index r = 0; r < n_tiles * kTile; ++r) {
    std::uint16_t* to = packed + (r / kTile * n_steps * kTile + r % kTile) * kTileDepth;
    for (Index i = 0; i < n_steps; ++i) {
      std::copy_n(w + r * ldw + i * kTileDepth, kTileDepth, to + i * kTile * kTileDepth);
    }
  }
  return {packed, kTileDepth, kTile * kTileDepth, n_steps * kTile * kTileDepth};
}

void amx_matmul(const std::uint16_t* w, Index ldw, Index n_rows, Index k,
                const Bf16Blocks& blocks) {
  amx_start();
  const Index lanes = blocks.lanes;
  const Index n_tiles = n_rows / kTile;
  const Index whole_depth = k / kTileDepth * kTileDepth;
  std::vector<std::uint16_t> packed(
      blocks.n_blocks > 1 ? static_cast<std::size_t>(n_tiles * kTile * kDepth) : 0);
  for (Index i = 0; n_tiles > 0 && i < whole_depth; i += kDepth) {
    const Index n_steps = std::min(kDepth, whole_depth - i) / kTileDepth;
    const TiledWeights tiles = packed.empty() ? TiledWeights{w + i, ldw, kTileDepth, kTile * ldw}
                                              : pack(w + i, ldw, n_tiles, n_steps, packed.data());
    for (Index b = 0; b < blocks.n_blocks; ++b) {
      amx_add(tiles, n_tiles, n_steps, blocks.pairs_of(b) + i * lanes, blocks.y_of(b), lanes);
    }
  }
  // What does not fill a tile goes through copies with zeros.
  std::array<std::uint16_t, kTile * kTileDepth> tile;
  std::vector<float> sums;
  for (Index b = 0; b < blocks.n_blocks; ++b) {
    for (Index r = 0; r < n_rows; r += kTile) {
      const Index n = std::min(kTile, n_rows - r);
      const Index first = n == kTile ? whole_depth : 0;
      if (first == k) continue;
      sums.assign(static_cast<std::size_t>(kTile * lanes), 0.0f);
      std::copy_n(blocks.y_of(b) + r * lanes, n * lanes, sums.data());
      for (Index i = first; i < k; i += kTileDepth) {
        tile.fill(0);
        for (Index row = 0; row < n; ++row) {
          std::copy_n(w + (r + row) * ldw + i, std::min(kTileDepth, k - i),
                      tile.data() + row * kTileDepth);
        }
        amx_add({tile.data(), kTileDepth, kTileDepth, 0}, 1, 1, blocks.pairs_of(b) + i * lanes,
                sums.data(), lanes);
      }
      std::copy_n(sums.data(), n * lanes, blocks.y_of(b) + r * lanes);
    }
  }
  amx_stop();
}

template <bool kFromZero>
void amx_product(const std::uint16_t* w, Index ldw, Index n_rows, Index k,
                 const std::uint16_t* pairs, float* y, Index lanes) {
  amx_add<kFromZero>({w, ldw, kTileDepth, kTile * ldw}, n_rows / kTile, k / kTileDepth, pairs, y,
                     lanes);
}

template <bool kFromZero>
void avx512_product(const std::uint16_t* w, Index ldw, Index n_rows, Index k,
                    const std::uint16_t* pairs, float* y, Index lanes) {
  if (kFromZero) std::fill_n(y, n_rows * lanes, 0.0f);
  avx512_matmul(w, ldw, n_rows, k, pairs, y, lanes);
}

void nothing() {}

#endif  // KVSCOPE_HAS_X86_BF16

std::string names_available() {
  std::string names;
  for (const std::string_view name : EnumNames<Matmul>::value) {
    if (is_available(*enum_from_name<Matmul>(name)))
      names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  }
  return names;
}

}  // namespace

bool is_available(Matmul matmul) {
  if (matmul == Matmul::f32 || matmul == Matmul::bf16_portable) return true;
#if KVSCOPE_HAS_X86_BF16
  static const bool avx512 = has_avx512_bf16();
  static const bool amx = request_amx();
  return matmul == Matmul::bf16_avx512 ? avx512 : amx;
#else
  return false;
#endif
}

Matmul matmul_from_name(std::string_view name) {
  if (name == "bf16") {
    for (const Matmul matmul : {Matmul::bf16_amx, Matmul::bf16_avx512}) {
      if (is_available(matmul)) return matmul;
    }
    return Matmul::bf16_portable;
  }
  const auto matmul = enum_from_name<Matmul>(name);
  if (matmul && is_available(*matmul)) return *matmul;
  if (matmul)
    throw ConfigError(
        "matmul \"{}\": this machine cannot run it; it has {}: choose one of these, or \"bf16\" "
        "for the best",
        name, names_available());
  throw ConfigError(
      "matmul \"{}\": expected f32, bf16, bf16-amx, bf16-avx512 or bf16-portable; this machine has "
      "{}",
      name, names_available());
}

const Bf16Products* bf16_products(Matmul matmul) {
#if KVSCOPE_HAS_X86_BF16
  static constexpr Bf16Products amx{amx_start, amx_stop, amx_product<true>, amx_product<false>};
  static constexpr Bf16Products avx512{nothing, nothing, avx512_product<true>,
                                       avx512_product<false>};
  if (matmul == Matmul::bf16_amx) return &amx;
  if (matmul == Matmul::bf16_avx512) return &avx512;
#endif
  (void)matmul;
  return nullptr;
}

Index bf16_pairs_size(Index k, Index lanes) {
  return padded(k) * lanes;
}

void bf16_pairs_from_lanes(const float* x, Index k, Index lanes, std::uint16_t* pairs) {
  std::vector<std::uint16_t> rounded(static_cast<std::size_t>(padded(k) * lanes), 0);
  from_float(x, DType::bf16, rounded.data(), static_cast<std::size_t>(k * lanes));
  for (Index i = 0; i < padded(k); i += 2) {
    const std::uint16_t* even = rounded.data() + i * lanes;
    const std::uint16_t* odd = even + lanes;
    std::uint16_t* out = pairs + i * lanes;
    for (Index t = 0; t < lanes; ++t) {
      out[2 * t] = even[t];
      out[2 * t + 1] = odd[t];
    }
  }
}

void bf16_matmul(Matmul matmul, const std::uint16_t* w, Index ldw, Index n_rows, Index k,
                 const float* bias, const Bf16Blocks& blocks) {
#if KVSCOPE_HAS_X86_BF16
  for (Index b = 0; b < blocks.n_blocks; ++b) {
    start_with_bias(bias, n_rows, blocks.y_of(b), blocks.lanes);
    if (matmul != Matmul::bf16_avx512) continue;
    avx512_matmul(w, ldw, n_rows, k, blocks.pairs_of(b), blocks.y_of(b), blocks.lanes);
  }
  if (matmul == Matmul::bf16_amx) amx_matmul(w, ldw, n_rows, k, blocks);
#else
  (void)matmul, (void)w, (void)ldw, (void)n_rows, (void)k, (void)bias, (void)blocks;
#endif
}

}  // namespace kvscope
