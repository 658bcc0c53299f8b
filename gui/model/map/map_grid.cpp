#include "gui/model/map/map_grid.hpp"

#include <algorithm>

#include "core/attention/visible.hpp"

namespace kvscope::gui {

namespace {
constexpr Index kMostBaseCells = 2048;
}

TokenRange overlap(TokenRange a, TokenRange b) {
  const Index begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

int MapGrid::top_level() const {
  int level = 0;
  while (cells(level) > kTileCells) ++level;
  return level;
}

int MapGrid::base_level() const {
  int level = 0;
  while (cells(level) > kMostBaseCells) ++level;
  return level;
}

TokenRange MapGrid::tokens(int level, CellRange cells) const {
  return {std::min(n_tokens, cells.begin << level), std::min(n_tokens, cells.end << level)};
}

CellRange MapGrid::tile_cells(int level, Index tile) const {
  return {tile * kTileCells, std::min(cells(level), (tile + 1) * kTileCells)};
}

TokenRange MapGrid::recorded(TokenRange queries) const {
  return overlap(queries, rows);
}

Index MapGrid::visible_pairs(TokenRange queries, TokenRange keys) const {
  const TokenRange kept = recorded(queries);
  if (kept.size() == 0 || keys.size() == 0) return 0;
  const TokenRange of_first = visible_keys(kept.begin, window);
  const TokenRange of_last = visible_keys(kept.end - 1, window);
  if (keys.begin >= of_last.end || keys.end <= of_first.begin) return 0;
  if (keys.begin >= of_last.begin && keys.end <= of_first.end) return kept.size() * keys.size();
  Index pairs = 0;
  for (Index query = kept.begin; query < kept.end; ++query) {
    pairs += overlap(visible_keys(query, window), keys).size();
  }
  return pairs;
}

bool MapGrid::sees_anything(TileId tile) const {
  return visible_pairs(tokens(tile.level, tile_rows(tile)), tokens(tile.level, tile_cols(tile))) >
         0;
}

bool MapGrid::sees(Index query, Index key) const {
  return visible_pairs({query, query + 1}, {key, key + 1}) > 0;
}

}  // namespace kvscope::gui
