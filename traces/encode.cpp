#include "traces/encode.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/error.hpp"

namespace kvscope {

namespace {

/// True if every value is finite: a maximum over exponents, which compilers turn into vector code
/// (signed: the oldest processors have that only).
template <class Bits>
bool all_below(const void* values, std::size_t n, Bits sign, Bits infinity) {
  const auto* bytes = static_cast<const std::byte*>(values);
  Bits largest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    Bits bits;
    std::memcpy(&bits, bytes + i * sizeof bits, sizeof bits);
    const auto magnitude = static_cast<Bits>(bits & ~sign);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest < infinity;
}

bool all_finite(DType dtype, const void* values, std::size_t n) {
  constexpr auto kSign16 = std::numeric_limits<std::int16_t>::min();
  switch (dtype) {
    case DType::f32:
      return all_below<std::int32_t>(values, n, std::numeric_limits<std::int32_t>::min(),
                                     0x7f800000);
    case DType::bf16:
      return all_below<std::int16_t>(values, n, kSign16, 0x7f80);
    case DType::f16:
      return all_below<std::int16_t>(values, n, kSign16, 0x7c00);
  }
  return false;
}

/// `given` was stored as a value that is not finite.
std::string describe(float given, DType given_dtype, DType stored) {
  constexpr const char* kTooLarge = "which does not fit f16 (65504 at most): record in bf16 or f32";
  if (std::isnan(given)) return "NaN";
  if (!std::isinf(given) && stored == DType::f16) return fmt::format("{}, {}", given, kTooLarge);
  if (!std::isinf(given)) return fmt::format("{}, which does not fit bf16: record in f32", given);
  if (given_dtype == DType::f32 || stored != DType::f16) return "Inf";
  return fmt::format("Inf, or a value {}", kTooLarge);  // it was rounded elsewhere
}

}  // namespace

std::span<const std::byte> encode_rows(const RowOrigin& origin, TypedRows rows,
                                       std::vector<std::byte>& scratch) {
  const DType dtype = h5::dtype_of(origin.array.type).value();
  const Index n_rows = rows.dim(0);
  const auto row_size = static_cast<std::size_t>(rows.dim(1));
  const std::size_t n = static_cast<std::size_t>(n_rows) * row_size;
  std::span<const std::byte> stored(rows.bytes().data(), n * size_of(dtype));
  if (rows.dtype() != dtype || !rows.is_contiguous()) {
    scratch.resize(stored.size());
    stored = scratch;
    std::byte* to = scratch.data();
    Tensor<float> widened;
    if (rows.dtype() == dtype) {
      rows.for_each_row(
          [&](const std::byte* row) { to = std::copy_n(row, row_size * size_of(dtype), to); });
    } else if (const auto floats = rows.floats(widened); floats.is_contiguous()) {
      from_float(floats.data(), dtype, to, n);
    } else {
      for (Index row = 0; row < n_rows; ++row, to += row_size * size_of(dtype))
        from_float(floats.row(row).data(), dtype, to, row_size);
    }
  }
  // A value that was not finite is not when it is stored either.
  if (all_finite(dtype, stored.data(), n)) return stored;
  Tensor<float> widened;
  const auto given = rows.floats(widened);
  for (std::size_t i = 0; i < n; ++i) {
    float value = 0.0f;
    to_float(dtype, stored.data() + i * size_of(dtype), &value, 1);
    if (std::isfinite(value)) continue;
    const Index row = static_cast<Index>(i / row_size);
    throw FormatError("{}: head slot {}, position {}, element {} is {}", origin.array.path,
                      origin.head, origin.first_position + row, i % row_size,
                      describe(given.row(row)[i % row_size], rows.dtype(), dtype));
  }
  return stored;
}

void require_finite(const std::string& where, Index first_position, Index row_size,
                    std::span<const float> rows) {
  if (all_finite(DType::f32, rows.data(), rows.size())) return;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (std::isfinite(rows[i])) continue;
    throw FormatError("{}: position {}, element {} is {}", where,
                      first_position + static_cast<Index>(i) / row_size,
                      static_cast<Index>(i) % row_size, describe(rows[i], DType::f32, DType::f32));
  }
}

}  // namespace kvscope
