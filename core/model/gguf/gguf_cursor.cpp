#include "core/model/gguf/gguf_cursor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/base/error.hpp"

namespace kvscope {

namespace {

// The types of metadata values, by the format's numbers.
enum ValueType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// Bytes of a value by its type; of a string at least its length.
constexpr std::array<std::uint64_t, 13> kLeastBytes = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

constexpr std::uint64_t kMostValues = 1 << 24;

double as_double(const GgufValue& value) {
  if (const auto* u = std::get_if<std::uint64_t>(&value)) return static_cast<double>(*u);
  if (const auto* i = std::get_if<std::int64_t>(&value)) return static_cast<double>(*i);
  if (const auto* b = std::get_if<bool>(&value)) return *b ? 1.0 : 0.0;
  return std::get<double>(value);
}

}  // namespace

void GgufCursor::fail(const std::string& what) const {
  throw FormatError("{}: {}", file_, what);
}

void GgufCursor::require(std::uint64_t n) const {
  if (n <= n_left()) return;
  fail(
      fmt::format("the header needs {} more bytes at offset {}, found {}: the file is truncated "
                  "or damaged",
                  n, at_, n_left()));
}

std::string_view GgufCursor::string(std::uint64_t most) {
  const auto length = number<std::uint64_t>();
  if (length > std::min(most, n_left())) {
    fail(
        fmt::format("a string of {} bytes at offset {}, expected at most {}: the file is "
                    "truncated or damaged",
                    length, at_, std::min(most, n_left())));
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_, length);
  at_ += length;
  return text;
}

std::uint64_t GgufCursor::count(std::string_view what, std::uint64_t least_bytes) {
  const auto n = number<std::uint64_t>();
  if (n > n_left() / least_bytes) {
    fail(
        fmt::format("{} {}, expected at most {} (the file has {} bytes): the file is truncated or "
                    "damaged",
                    n, what, n_left() / least_bytes, bytes_.size()));
  }
  return n;
}

GgufValue GgufCursor::scalar(std::uint32_t type) {
  switch (type) {
    case kU8:
      return std::uint64_t{number<std::uint8_t>()};
    case kI8:
      return std::int64_t{number<std::int8_t>()};
    case kU16:
      return std::uint64_t{number<std::uint16_t>()};
    case kI16:
      return std::int64_t{number<std::int16_t>()};
    case kU32:
      return std::uint64_t{number<std::uint32_t>()};
    case kI32:
      return std::int64_t{number<std::int32_t>()};
    case kF32:
      return double{number<float>()};
    case kBool:
      return number<std::uint8_t>() != 0;
    case kU64:
      return number<std::uint64_t>();
    case kI64:
      return number<std::int64_t>();
    case kF64:
      return number<double>();
    default:
      return string(std::numeric_limits<std::uint64_t>::max());
  }
}

GgufArray GgufCursor::array() {
  const auto type = number<std::uint32_t>();
  if (type >= kLeastBytes.size() || type == kArray) {
    fail(fmt::format("expected a list of numbers or strings, found a list of values of type {}",
                     type));
  }
  GgufArray result;
  result.holds_strings = type == kString;
  const std::uint64_t n = count("values of a list", kLeastBytes[type]);
  // Values take more room in memory than in the file; no vocabulary is as long.
  if (n > kMostValues)
    fail(fmt::format("a list of {} values, expected at most {}", n, kMostValues));
  if (result.holds_strings) {
    result.strings.reserve(n);
    for (std::uint64_t i = 0; i < n; ++i) result.strings.push_back(string(n_left()));
  } else {
    result.numbers.reserve(n);
    for (std::uint64_t i = 0; i < n; ++i) result.numbers.push_back(as_double(scalar(type)));
  }
  return result;
}

GgufValue GgufCursor::value() {
  const auto type = number<std::uint32_t>();
  if (type >= kLeastBytes.size()) {
    fail(fmt::format("expected a metadata value of type 0 to {}, found type {}",
                     kLeastBytes.size() - 1, type));
  }
  if (type == kArray) return array();
  return scalar(type);
}

}  // namespace kvscope
