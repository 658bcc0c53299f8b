// A square of an attention map at one level, and the tiles that are kept for a whole map.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "analysis/kinds/attention_map.hpp"
#include "gui/model/map/attention_head.hpp"
#include "gui/model/map/map_grid.hpp"

namespace kvscope::gui {

/// What is known of a row of cells.
enum class RowState : std::uint8_t {
  pending,     // nothing yet
  sampled,     // from one query of many
  exact,       // every recorded query
  unrecorded,  // its queries are not in the trace
};

struct MapTile {
  TileId id;
  Index n_rows = 0;  // cells; less than kTileCells at the end of the context
  Index n_cols = 0;
  std::vector<float> max;      // [n_rows, n_cols]; NaN: no recorded query sees a key (masked)
  std::vector<float> mean;     // [n_rows, n_cols]; empty at level 0, where it would be the same
  std::vector<RowState> rows;  // [n_rows]
  std::uint64_t stamp = 0;     // another one after every change, never one of another tile

  std::span<const float> values(MapPooling pooling) const {
    return pooling == MapPooling::mean && !mean.empty() ? mean : max;
  }
  std::size_t bytes() const;
};

/// A tile whose rows are pending or unrecorded.
MapTile empty_tile(const MapGrid& grid, TileId id);
/// A number that no tile had before. Safe from several threads.
std::uint64_t next_stamp();

/// Computes one tile, exact. Throws Interrupted on a stop.
MapTile compute_tile(const AttentionHead& head, TileId id, ThreadPool& threads,
                     std::stop_token stop);

/// A part of an overview's rows, looked at through one query of each `group` rows of cells.
struct SamplePiece {
  CellRange rows;
  Index group = 1;
};

/// The pieces of a first glance at a long map, to be taken from the end: all of it coarsely, then
/// all of it row by row, what is near the query `near` first. Empty for contexts so short that they
/// are exact before one could look.
std::vector<SamplePiece> sample_plan(const MapGrid& grid, Index near);

/// The levels from base_level() on of one head, filled in as rows of cells come.
class MapOverview {
 public:
  explicit MapOverview(const MapGrid& grid);

  const MapGrid& grid() const { return grid_; }
  int base_level() const { return base_; }
  /// Null where nothing is visible in the whole tile, or the level is below the base.
  const MapTile* tile(TileId id) const;
  /// Takes rows of cells of the base level, all columns, and folds them into the coarser levels.
  /// Rows that are known better stay as they are.
  void put(const PooledCells& cells, RowState state);
  /// Takes the rows that an earlier state of the same recording, shorter than this one, knows
  /// exactly: a query sees no later key, so they are what they were.
  void adopt(const MapOverview& before);
  /// At most `most` rows of the base level that are not exact yet, nearest to the query `near`
  /// and not among the `busy` ones.
  std::optional<CellRange> next_rows(Index near, Index most,
                                     std::span<const CellRange> busy = {}) const;
  /// Recorded rows of the base level, and how many of them are exact.
  Index n_rows() const { return n_rows_; }
  Index n_exact() const { return n_exact_; }
  bool is_complete() const { return n_exact_ == n_rows_; }
  bool has_picture() const { return n_known_ > 0; }
  std::size_t bytes() const;

 private:
  std::optional<MapTile>& slot(TileId id);
  const std::optional<MapTile>& slot(TileId id) const;
  void fold(int level, CellRange rows);
  void fold_tile(MapTile& tile, CellRange rows);

  MapGrid grid_;
  int base_ = 0;
  std::vector<std::vector<std::optional<MapTile>>> levels_;  // [top - base + 1][tiles, tiles]
  std::vector<RowState> state_;                              // of the base level's rows
  Index n_rows_ = 0;
  Index n_known_ = 0;
  Index n_exact_ = 0;
};

}  // namespace kvscope::gui
