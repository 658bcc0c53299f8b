// Storage types of tensors (f16 and bf16 exist in storage only; all computing is f32 or f64).
#pragma once

#include <cstddef>

namespace kvscope {

enum class DType { f32, f16, bf16 };

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) {
  return dtype == DType::f32 ? 4 : 2;
}

/// Widens n stored elements to float, exactly. src need not be aligned.
void to_float(DType dtype, const void* src, float* dst, std::size_t n);

/// Rounds n floats to the storage type, to nearest even; f16 overflows to infinity. NaN stays NaN.
void from_float(const float* src, DType dtype, void* dst, std::size_t n);

}  // namespace kvscope
