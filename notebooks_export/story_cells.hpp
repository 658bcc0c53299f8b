// A head's attention weights over a rectangle of queries and keys, in cells, and as pages of HTML
// hold them: 16 bits a cell.
#pragma once

#include <stop_token>

#include "analysis/base/pooled_rows.hpp"
#include "core/base/parallel.hpp"
#include "core/base/vocabulary.hpp"
#include "core/trace/source.hpp"

namespace kvscope {

/// Cells of `block` x `block` pairs; the last row and column may hold fewer.
struct CellGrid {
  TokenRange queries;
  TokenRange keys;
  Index block = 1;
  std::optional<Index> window;  // the layer's: a query sees the last keys only

  Index rows() const { return (queries.size() + block - 1) / block; }
  Index cols() const { return (keys.size() + block - 1) / block; }
  TokenRange row_queries(Index row) const;
  /// Columns that some query of the row sees; empty (begin = end) if none.
  TokenRange seen_cols(Index row) const;
  /// Cells that are seen, over all rows: row 0 first.
  std::size_t n_seen() const;
};

/// Smaller weights are told apart from none, not from each other.
inline constexpr double kPageFloor = 1e-9;

/// A weight in 16 bits: 0 for NaN (not visible), 1 below the floor, else its logarithm in 65533
/// equal steps; the relative error is below 2e-4.
std::uint16_t page_code(double weight);
double weight_of_page_code(std::uint16_t code);

/// A share in [0, 1] in 16 bits: 0 for NaN, else 1 + 65534 times the share; error below 8e-6.
std::uint16_t share_code(double share);
double share_of_code(std::uint16_t code);

/// The exact softmax weights of a head pooled into the grid's cells, [rows, cols]: NaN where no
/// query sees a key. What kvscope analyze attention-map computes, of a rectangle. Throws
/// ConfigError for a layer or head that was not recorded; Interrupted on a stop.
std::vector<float> cell_weights(const TraceSource& trace, Index layer, Index head,
                                const CellGrid& grid, MapPooling pooling, ThreadPool& pool,
                                const std::stop_token& stop);

/// The n heaviest keys of each query, the heaviest first, of equal ones the first position.
struct HeavyKeys {
  Index most = 0;                  // per query
  std::vector<std::int32_t> keys;  // [queries, most]; -1 where a query sees fewer
  std::vector<double> weights;     // [queries, most]
};
HeavyKeys heavy_keys(const TraceSource& trace, Index layer, Index head, TokenRange queries,
                     Index most, ThreadPool& pool, const std::stop_token& stop);

std::string page_base64(std::span<const std::uint8_t> bytes);

/// Bytes, the low one first, for page_base64.
class PageBytes {
 public:
  void put8(unsigned value) { bytes_.push_back(static_cast<std::uint8_t>(value & 0xffU)); }
  void put16(unsigned value) {
    put8(value);
    put8(value >> 8);
  }
  void put32(std::uint32_t value) {
    put16(value & 0xffffU);
    put16(value >> 16);
  }
  std::string base64() const { return page_base64(bytes_); }

 private:
  std::vector<std::uint8_t> bytes_;
};

/// The codes of the seen cells, two bytes each, base64.
std::string encode_cells(std::span<const float> weights, const CellGrid& grid);

}  // namespace kvscope
