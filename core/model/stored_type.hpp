// How a checkpoint stores weights: plain floats, or blocks of few-bit integers that share scales.
//
// The block types are those of GGUF files, by the names that the files' tools print (Q4_0, Q6_K,
// ...). Every row of a tensor is a whole number of blocks, so that rows are widened one by one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor/dtype.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

enum class StoredType {
  f32,
  f16,
  bf16,
  q4_0,    // 32 values: d * (q - 8), q of 4 bits
  q4_1,    // 32 values: d * q + m
  q5_0,    // 32 values: d * (q - 16), q of 5 bits
  q5_1,    // 32 values: d * q + m
  q8_0,    // 32 values: d * q, q of 8 bits with a sign
  q2_k,    // 256 values in 16 groups: d * scale * q - m * minimum
  q3_k,    // 256 values in 16 groups: d * scale * (q - 4)
  q4_k,    // 256 values in 8 groups: d * scale * q - m * minimum
  q5_k,    // the same with q of 5 bits
  q6_k,    // 256 values in 16 groups: d * scale * (q - 32)
  iq4_nl,  // 32 values: d * one of 16 levels
  iq4_xs,  // 256 values in 8 groups: d * scale * one of 16 levels
  mxfp4,   // 32 values: a power of two * a float of 4 bits
};

inline constexpr int kNumStoredTypes = 16;

/// The unit of storage: so many values in so many bytes.
struct StoredBlock {
  Index n_values = 1;
  Index n_bytes = 4;
};

StoredBlock block_of(StoredType type);

/// "F32", "Q4_K", ...
std::string_view name_of(StoredType type);

constexpr bool is_plain(StoredType type) {
  return type == StoredType::f32 || type == StoredType::f16 || type == StoredType::bf16;
}

/// The storage type of plain floats; `type` must be plain.
constexpr DType plain_dtype(StoredType type) {
  return type == StoredType::f32 ? DType::f32
                                 : (type == StoredType::f16 ? DType::f16 : DType::bf16);
}

/// Bytes of n values, a whole number of blocks.
std::size_t stored_bytes(StoredType type, Index n);

/// Widens n values, a whole number of blocks, exactly as their format defines them (products and
/// sums in f32). src need not be aligned.
void widen(StoredType type, const std::byte* src, float* dst, Index n);

/// One tensor as the header of its file has it.
struct TensorInFile {
  std::string name;
  std::string type_name;             // as the file spells it: "BF16", "I64", "Q4_K", "type 99"
  std::optional<StoredType> type;    // empty if the runtime cannot read it
  std::vector<Index> shape;          // any rank, rows first
  std::int64_t count = 0;            // product of shape, 1 for a scalar
  std::span<const std::byte> bytes;  // of a type that GGUF does not know: to the end of the file
};

}  // namespace kvscope
