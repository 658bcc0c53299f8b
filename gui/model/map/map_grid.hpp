// The geometry of an attention map's levels: cells, tiles, and which pairs of query and key exist.
//
// A map has a row per query and a column per key, both [0, n_tokens). A cell of level L stands for
// 2^L x 2^L pairs; a tile is kTileCells x kTileCells cells of one level. A query sees the keys that
// the causal mask and the layer's window leave it; queries that were not recorded see nothing, and
// are told apart from masked ones by row.
#pragma once

#include <optional>

#include "core/trace/info.hpp"

namespace kvscope::gui {

inline constexpr Index kTileCells = 256;

/// Half-open range of cells along one side of a level.
struct CellRange {
  Index begin = 0;
  Index end = 0;
  Index size() const { return end - begin; }
  bool operator==(const CellRange&) const = default;
};

/// One tile: row 0 holds the first queries, col 0 the first keys.
struct TileId {
  int level = 0;
  Index row = 0;
  Index col = 0;
  bool operator==(const TileId&) const = default;
};

struct MapGrid {
  Index n_tokens = 0;
  TokenRange rows;              // recorded queries
  std::optional<Index> window;  // keys per query, itself included; empty = all

  /// Cells per side.
  Index cells(int level) const { return (n_tokens + (Index{1} << level) - 1) >> level; }
  Index tiles(int level) const { return (cells(level) + kTileCells - 1) / kTileCells; }
  /// The level whose only tile holds the whole map.
  int top_level() const;
  /// The finest level that is kept for the whole map: at most 2048 cells per side.
  int base_level() const;

  /// Tokens of a range of cells, cut at the end of the context.
  TokenRange tokens(int level, CellRange cells) const;
  CellRange tile_rows(TileId tile) const { return tile_cells(tile.level, tile.row); }
  CellRange tile_cols(TileId tile) const { return tile_cells(tile.level, tile.col); }
  /// The recorded ones among some queries; may be empty.
  TokenRange recorded(TokenRange queries) const;
  /// Pairs of a recorded query and a key that it sees. O(1) but along the edges of the mask.
  Index visible_pairs(TokenRange queries, TokenRange keys) const;
  bool sees_anything(TileId tile) const;
  /// True if the query was recorded and sees the key.
  bool sees(Index query, Index key) const;

 private:
  CellRange tile_cells(int level, Index tile) const;
};

/// What both ranges hold; empty (end = begin) if nothing.
TokenRange overlap(TokenRange a, TokenRange b);

}  // namespace kvscope::gui
