#include "notebooks_export/page_cells.hpp"

#include <algorithm>
#include <cmath>

#include "analysis/base/base64.hpp"

namespace kvscope {

TokenRange CellGrid::tokens(Index cell) const {
  return {cell * block, std::min(n_tokens, (cell + 1) * block)};
}

TokenRange CellGrid::seen_cols(Index row) const {
  const Index first_key = window ? std::max<Index>(0, tokens(row).begin - *window + 1) : 0;
  return {first_key / block, row + 1};
}

std::size_t CellGrid::n_seen() const {
  std::size_t n = 0;
  for (Index row = 0; row < side(); ++row) n += static_cast<std::size_t>(seen_cols(row).size());
  return n;
}

std::uint16_t page_code(double weight) {
  if (std::isnan(weight)) return 0;
  if (weight < kPageFloor) return 1;
  const double share = 1.0 - std::log(std::min(weight, 1.0)) / std::log(kPageFloor);
  return static_cast<std::uint16_t>(2.0 + std::round(share * 65533.0));
}

std::uint16_t share_code(double share) {
  if (std::isnan(share)) return 0;
  return static_cast<std::uint16_t>(1.0 + std::round(std::clamp(share, 0.0, 1.0) * 65534.0));
}

void PageBytes::put16(unsigned value) {
  put8(value & 0xffU);
  put8(value >> 8 & 0xffU);
}

void PageBytes::put32(std::uint32_t value) {
  put16(value & 0xffffU);
  put16(value >> 16);
}

std::string PageBytes::text() const {
  return text_from_bytes(bytes_);
}

}  // namespace kvscope
