// Heat maps of a layer, query block x page: where the attention lies, what a selection kept of it,
// and which keys it chose.
//
// A query block is `query_block` positions, a page `page_size` keys, both aligned at multiples of
// their size. The rows that are measured may be a sample of a block. Cells that no measured row
// sees (later keys, keys behind a sliding window, blocks without rows) are masked: NaN, never 0.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "analysis/base/reproducible_sums.hpp"
#include "core/attention/selection.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// The cells of the maps, and how many (row, key) pairs lie in each.
class MapGrid {
 public:
  /// row_pos: measured positions, ascending, at least one. n_heads: query heads that each row is
  /// measured for.
  MapGrid(std::span<const Index> row_pos, Index n_heads, Index query_block, Index page_size);

  Index n_blocks() const { return n_blocks_; }
  Index n_pages() const { return n_pages_; }
  Index n_cells() const { return n_blocks_ * n_pages_; }
  /// First positions of the blocks and pages: the axes of a plot.
  std::vector<Index> block_begins() const;
  std::vector<Index> page_begins() const;

  Index page_size() const { return page_size_; }
  Index block_of(Index pos) const { return pos / query_block_ - first_block_; }
  Index page_of(Index pos) const { return pos / page_size_; }
  std::size_t cell(Index block, Index page) const {
    return static_cast<std::size_t>(block * n_pages_ + page);
  }
  /// Measured rows of a block, times heads.
  Index n_rows(Index block) const { return n_rows_[static_cast<std::size_t>(block)]; }
  /// (row, head, key) triples of each cell in which the row sees the key, [n_cells].
  std::vector<Index> visible_counts(std::optional<Index> window) const;

 private:
  std::vector<Index> row_pos_;
  Index n_heads_;
  Index query_block_;
  Index page_size_;
  Index first_block_ = 0;
  Index n_blocks_ = 0;
  Index n_pages_ = 0;
  std::vector<Index> n_rows_;  // [n_blocks]
};

/// Sums over rows and heads of one layer; 16 bytes per cell. Filled from several threads, the same
/// bits in any order.
class QueryPageMap {
 public:
  explicit QueryPageMap(const MapGrid& grid);

  /// A whole row: probs of the visible keys.
  void add_row(Index pos, std::span<const double> probs, TokenRange visible);
  /// The part of a row that was kept: `keys` ascending and visible.
  void add_kept(Index pos, std::span<const double> probs, TokenRange visible,
                std::span<const KeyPos> keys);

  /// Attention of each cell's page, mean over the block's rows and heads, [n_cells]; the cells of a
  /// block add up to the mean of what was added. NaN where `visible_counts` is 0.
  std::vector<float> mean_mass(std::span<const Index> visible_counts) const;
  /// Share of the visible (row, head, key) triples that were kept, [n_cells]. NaN where there are
  /// none.
  std::vector<float> kept_share(std::span<const Index> visible_counts) const;

 private:
  const MapGrid& grid_;
  ReproducibleSums mass_;
  std::vector<std::int64_t> n_kept_;  // [n_cells]
};

}  // namespace kvscope
