// Products of bf16 weights with activations rounded to bf16, summed in f32: AMX tiles, AVX-512
// pairs, or plain vectors.
//
// Which kernel runs is decided at run time. Every output is its own accumulator over k in one fixed
// order, so that neither chunks nor threads change a bit; the three kernels differ from each other
// in the last bits of their sums.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/base/enum_names.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// How matrix products are computed. f32: weights are widened, activations stay f32.
enum class Matmul { f32, bf16_portable, bf16_avx512, bf16_amx };
template <>
struct EnumNames<Matmul> {
  static constexpr std::array<std::string_view, 4> value = {"f32", "bf16-portable", "bf16-avx512",
                                                            "bf16-amx"};
};

/// True if this machine (and its kernel, for AMX) can run it.
bool is_available(Matmul matmul);

/// "f32"; "bf16" (the best that this machine has); or one of "bf16-amx", "bf16-avx512",
/// "bf16-portable". Throws ConfigError for another name, or where the machine lacks it: the
/// sentence says what it has.
Matmul matmul_from_name(std::string_view name);

/// Rounds x [k, lanes] to pairs [ceil(k / 32) * 16, lanes, 2], zero from k on: `pairs` holds
/// bf16_pairs_size(k, lanes) values.
void bf16_pairs_from_lanes(const float* x, Index k, Index lanes, std::uint16_t* pairs);
Index bf16_pairs_size(Index k, Index lanes);

/// Lane blocks of a product: activations in pairs, and where the results go.
struct Bf16Blocks {
  /// [n_blocks], pairs_stride apart, from bf16_pairs_from_lanes.
  const std::uint16_t* pairs = nullptr;
  Index pairs_stride = 0;
  float* y = nullptr;  // [n_blocks] of [n_rows, lanes], y_stride apart
  Index y_stride = 0;
  Index n_blocks = 0;
  Index lanes = 0;  // a multiple of 16

  const std::uint16_t* pairs_of(Index block) const { return pairs + block * pairs_stride; }
  float* y_of(Index block) const { return y + block * y_stride; }
};

/// y = w x + bias for every block. w bf16 [n_rows, k] with row stride ldw; bias [n_rows] or null.
/// matmul: bf16_avx512 or bf16_amx.
void bf16_matmul(Matmul matmul, const std::uint16_t* w, Index ldw, Index n_rows, Index k,
                 const float* bias, const Bf16Blocks& blocks);

/// The two products of attention on stored bf16 keys and values, for one block of lanes: w [n_rows,
/// k] with row stride ldw, n_rows a multiple of 16 and k of 32; pairs [k / 2, lanes, 2]; y [n_rows,
/// lanes]; lanes 16 or 32. Every sum is one chain over k whatever the number of rows and lanes.
struct Bf16Products {
  /// Before the first product of a thread's stretch of work, and after the last one.
  void (*start)();
  void (*stop)();
  /// y = w x, and y += w x.
  void (*set)(const std::uint16_t* w, Index ldw, Index n_rows, Index k, const std::uint16_t* pairs,
              float* y, Index lanes);
  void (*add)(const std::uint16_t* w, Index ldw, Index n_rows, Index k, const std::uint16_t* pairs,
              float* y, Index lanes);
};

/// Null where matmul has no instructions for bf16 (f32, bf16_portable): keys and values
/// are then widened.
const Bf16Products* bf16_products(Matmul matmul);

}  // namespace kvscope
