// The cells of a head's attention map, and numbers in the bytes in which an HTML page holds them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/index.hpp"

namespace kvscope {

/// Cells of `block` x `block` pairs of a query and a key; the last ones may hold fewer.
struct CellGrid {
  Index n_tokens = 0;
  Index block = 1;
  std::optional<Index> window;  // the layer's: a query sees the last keys only

  /// Rows, and columns.
  Index side() const { return (n_tokens + block - 1) / block; }
  /// Positions of a row's queries, or of a column's keys.
  TokenRange tokens(Index cell) const;
  /// Columns that some query of the row sees.
  TokenRange seen_cols(Index row) const;
  std::size_t n_seen() const;
};

/// Smaller weights are told apart from none, not from each other.
inline constexpr double kPageFloor = 1e-9;

/// A weight in 16 bits: 0 for NaN (not visible), 1 below the floor, else its logarithm in 65533
/// equal steps; the relative error is below 2e-4.
std::uint16_t page_code(double weight);

/// A share in [0, 1] in 16 bits: 0 for NaN, else 1 + 65534 times the share; error below 8e-6.
std::uint16_t share_code(double share);

/// Bytes, the low one of a number first.
class PageBytes {
 public:
  void put8(unsigned value) { bytes_.push_back(static_cast<std::byte>(value)); }
  void put16(unsigned value);
  void put32(std::uint32_t value);
  /// base64, filled up with zero bytes.
  std::string text() const;

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace kvscope
