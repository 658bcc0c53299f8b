#include "traces/encode.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/base/error.hpp"

namespace kvscope {

namespace {

constexpr std::uint32_t kF32Infinity = 0x7f800000U;
constexpr std::uint16_t kF16Infinity = 0x7c00U;

/// True if every value is finite: a maximum over exponents, which compilers turn into vector code.
bool all_finite(const float* values, std::size_t n) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffU;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest < kF32Infinity;
}

bool all_f16_finite(const std::byte* bytes, std::size_t n) {
  const auto* halves = reinterpret_cast<const std::uint16_t*>(bytes);
  std::uint16_t largest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const auto magnitude = static_cast<std::uint16_t>(halves[i] & 0x7fffU);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest < kF16Infinity;
}

std::string describe(float value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return "Inf";
  return fmt::format("{}, which does not fit f16 (65504 at most): record in bf16 or f32", value);
}

}  // namespace

void encode_rows(const RowOrigin& origin, TensorView<const float> rows,
                 std::vector<std::byte>& out) {
  const DType dtype = h5::dtype_of(origin.array.type).value();
  const Index n_rows = rows.dim(0);
  const Index row_size = rows.dim(1);
  // Rows per conversion call.
  const Index step = rows.is_contiguous() ? std::max<Index>(n_rows, 1) : 1;
  const std::size_t n = static_cast<std::size_t>(step * row_size);
  for (Index row = 0; row < n_rows; row += step) {
    const float* source = rows.data() + row * rows.stride(0);
    const std::size_t at = out.size();
    out.resize(at + n * size_of(dtype));
    from_float(source, dtype, out.data() + at, n);
    const bool ok =
        all_finite(source, n) && (dtype != DType::f16 || all_f16_finite(out.data() + at, n));
    if (ok) continue;
    for (std::size_t i = 0; i < n; ++i) {
      const bool overflows = dtype == DType::f16 && std::fabs(source[i]) >= 65520.0f;
      if (std::isfinite(source[i]) && !overflows) continue;
      throw FormatError(fmt::format("{}: head slot {}, position {}, element {} is {}",
                                    origin.array.path, origin.head,
                                    origin.first_position + row + static_cast<Index>(i) / row_size,
                                    static_cast<Index>(i) % row_size, describe(source[i])));
    }
  }
}

void require_finite(const std::string& where, Index first_position, Index row_size,
                    std::span<const float> rows) {
  if (all_finite(rows.data(), rows.size())) return;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (std::isfinite(rows[i])) continue;
    throw FormatError(fmt::format("{}: position {}, element {} is {}", where,
                                  first_position + static_cast<Index>(i) / row_size,
                                  static_cast<Index>(i) % row_size, describe(rows[i])));
  }
}

}  // namespace kvscope
