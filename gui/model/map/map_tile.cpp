#include "gui/model/map/map_tile.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace kvscope::gui {

namespace {
constexpr int kFirstSampledLevel = 3;
}

std::size_t MapTile::bytes() const {
  return sizeof *this + (max.size() + mean.size()) * sizeof(float) + rows.size();
}

std::uint64_t next_stamp() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

MapTile empty_tile(const MapGrid& grid, TileId id) {
  const CellRange rows = grid.tile_rows(id);
  const CellRange cols = grid.tile_cols(id);
  MapTile tile{id, rows.size(), cols.size(), {}, {}, {}, next_stamp()};
  tile.max.assign(static_cast<std::size_t>(tile.n_rows * tile.n_cols),
                  std::numeric_limits<float>::quiet_NaN());
  if (id.level > 0) tile.mean = tile.max;
  for (Index row = rows.begin; row < rows.end; ++row) {
    const bool recorded = grid.recorded(grid.tokens(id.level, {row, row + 1})).size() > 0;
    tile.rows.push_back(recorded ? RowState::pending : RowState::unrecorded);
  }
  return tile;
}

MapTile compute_tile(const AttentionHead& head, TileId id, ThreadPool& threads,
                     std::stop_token stop) {
  MapTile tile = empty_tile(head.grid(), id);
  PooledCells cells = head.pool(id.level, head.grid().tile_rows(id), head.grid().tile_cols(id),
                                threads, std::move(stop));
  tile.max = std::move(cells.max);
  if (id.level > 0) tile.mean = std::move(cells.mean);
  std::ranges::replace(tile.rows, RowState::pending, RowState::exact);
  return tile;
}

std::vector<SamplePiece> sample_plan(const MapGrid& grid, Index near) {
  std::vector<SamplePiece> plan;
  const int level = grid.base_level();
  if (level < kFirstSampledLevel) return plan;
  const CellRange rows{grid.rows.begin >> level, ((grid.rows.end - 1) >> level) + 1};
  for (const auto& [group, piece] : {std::pair<Index, Index>{8, 128}, {1, 32}}) {
    const auto first = static_cast<std::ptrdiff_t>(plan.size());
    for (Index begin = rows.begin; begin < rows.end; begin += piece) {
      plan.push_back({{begin, std::min(rows.end, begin + piece)}, group});
    }
    std::stable_sort(plan.begin() + first, plan.end(),
                     [&](const SamplePiece& a, const SamplePiece& b) {
                       const Index centre = near >> level;
                       return std::abs(a.rows.begin + a.rows.end - 2 * centre) <
                              std::abs(b.rows.begin + b.rows.end - 2 * centre);
                     });
  }
  std::reverse(plan.begin(), plan.end());  // taken from the end
  return plan;
}

MapOverview::MapOverview(const MapGrid& grid) : grid_(grid), base_(grid.base_level()) {
  for (int level = base_; level <= grid.top_level(); ++level) {
    const Index n = grid.tiles(level);
    auto& tiles = levels_.emplace_back(static_cast<std::size_t>(n * n));
    for (Index row = 0; row < n; ++row) {
      for (Index col = 0; col < n; ++col) {
        const TileId id{level, row, col};
        if (grid.sees_anything(id)) {
          tiles[static_cast<std::size_t>(row * n + col)] = empty_tile(grid, id);
        }
      }
    }
  }
  for (Index row = 0; row < grid.cells(base_); ++row) {
    const bool recorded = grid.recorded(grid.tokens(base_, {row, row + 1})).size() > 0;
    state_.push_back(recorded ? RowState::pending : RowState::unrecorded);
    n_rows_ += recorded ? 1 : 0;
  }
}

const std::optional<MapTile>& MapOverview::slot(TileId id) const {
  const Index n = grid_.tiles(id.level);
  return levels_[static_cast<std::size_t>(id.level - base_)]
                [static_cast<std::size_t>(id.row * n + id.col)];
}

std::optional<MapTile>& MapOverview::slot(TileId id) {
  return const_cast<std::optional<MapTile>&>(std::as_const(*this).slot(id));
}

const MapTile* MapOverview::tile(TileId id) const {
  if (id.level < base_ || id.level > grid_.top_level()) return nullptr;
  const Index n = grid_.tiles(id.level);
  if (id.row < 0 || id.col < 0 || id.row >= n || id.col >= n) return nullptr;
  const auto& found = slot(id);
  return found ? &*found : nullptr;
}

void MapOverview::put(const PooledCells& cells, RowState state) {
  for (Index row = cells.rows.begin; row < cells.rows.end; ++row) {
    RowState& known = state_[static_cast<std::size_t>(row)];
    if (known == RowState::unrecorded || known >= state) continue;
    n_known_ += known == RowState::pending ? 1 : 0;
    n_exact_ += state == RowState::exact ? 1 : 0;
    known = state;
    const Index tile_row = row / kTileCells;
    for (Index col = 0; col < grid_.tiles(base_); ++col) {
      auto& tile = slot({base_, tile_row, col});
      if (!tile) continue;
      const Index own = row % kTileCells;
      const auto from = static_cast<std::ptrdiff_t>(cells.at(row, col * kTileCells));
      const auto to = static_cast<std::ptrdiff_t>(own * tile->n_cols);
      std::copy_n(cells.max.begin() + from, tile->n_cols, tile->max.begin() + to);
      if (!tile->mean.empty()) {
        std::copy_n(cells.mean.begin() + from, tile->n_cols, tile->mean.begin() + to);
      }
      tile->rows[static_cast<std::size_t>(own)] = state;
      tile->stamp = next_stamp();
    }
  }
  CellRange rows = cells.rows;
  for (int level = base_ + 1; level <= grid_.top_level(); ++level) {
    rows = {rows.begin / 2, (rows.end + 1) / 2};
    fold(level, rows);
  }
}

void MapOverview::adopt(const MapOverview& before) {
  const MapGrid& old = before.grid_;
  if (base_ < before.base_ || base_ > old.top_level()) return;
  const Index n_whole = std::min(grid_.n_tokens, old.n_tokens) >> base_;  // rows of cells
  const CellRange cols{0, grid_.cells(base_)};
  const auto row_size = static_cast<std::size_t>(cols.size());
  std::vector<float> blank(row_size, std::numeric_limits<float>::quiet_NaN());
  for (Index row = 0; row < n_whole; ++row) {
    PooledCells cells{base_, {row, row + 1}, cols, blank, blank};
    bool is_exact = false;
    for (Index col = 0; col < old.tiles(base_); ++col) {
      const MapTile* tile = before.tile({base_, row / kTileCells, col});
      if (tile == nullptr) continue;
      const Index own = row % kTileCells;
      is_exact = tile->rows[static_cast<std::size_t>(own)] == RowState::exact;
      if (!is_exact) break;
      const auto from = static_cast<std::ptrdiff_t>(own * tile->n_cols);
      const Index n = std::min(tile->n_cols, cols.size() - col * kTileCells);
      const auto to = static_cast<std::ptrdiff_t>(col * kTileCells);
      std::copy_n(tile->values(MapPooling::max).begin() + from, n, cells.max.begin() + to);
      std::copy_n(tile->values(MapPooling::mean).begin() + from, n, cells.mean.begin() + to);
    }
    if (is_exact) put(cells, RowState::exact);
  }
}

void MapOverview::fold(int level, CellRange rows) {
  const Index n = grid_.tiles(level);
  for (Index row = rows.begin / kTileCells; row * kTileCells < rows.end; ++row) {
    for (Index col = 0; col < n; ++col) {
      if (auto& tile = slot({level, row, col})) fold_tile(*tile, rows);
    }
  }
}

void MapOverview::fold_tile(MapTile& tile, CellRange rows) {
  const int level = tile.id.level;
  const CellRange own = grid_.tile_rows(tile.id);
  const Index first_col = grid_.tile_cols(tile.id).begin;
  const Index n_below = grid_.cells(level - 1);
  tile.stamp = next_stamp();
  for (Index row = std::max(rows.begin, own.begin); row < std::min(rows.end, own.end); ++row) {
    const CellRange below{2 * row, std::min(n_below, 2 * row + 2)};
    // a row knows what the least known of its recorded parts knows
    RowState state = RowState::unrecorded;
    bool any = false;
    bool all_known = true;
    for (Index r = below.begin; r < below.end; ++r) {
      const TokenRange queries = grid_.recorded(grid_.tokens(level - 1, {r, r + 1}));
      if (queries.size() == 0) continue;
      RowState part = RowState::unrecorded;
      for (Index b = queries.begin >> base_; b <= (queries.end - 1) >> base_; ++b) {
        part = std::min(part, state_[static_cast<std::size_t>(b)]);
      }
      state = std::min(state, part);
      any = any || part != RowState::pending;
      all_known = all_known && part != RowState::pending;
    }
    if (any && state == RowState::pending) state = RowState::sampled;
    tile.rows[static_cast<std::size_t>(row - own.begin)] = state;
    const TokenRange queries_of_row = grid_.tokens(level, {row, row + 1});
    const Index whole = Index{1} << (2 * level);  // pairs of a cell without a mask
    // the four parts of a cell lie in at most two tiles across and one down
    const std::array<const MapTile*, 2> parts = {
        this->tile({level - 1, below.begin / kTileCells, 2 * tile.id.col}),
        this->tile({level - 1, below.begin / kTileCells, 2 * tile.id.col + 1})};
    for (Index c = 0; c < tile.n_cols; ++c) {
      const auto to = static_cast<std::size_t>((row - own.begin) * tile.n_cols + c);
      const Index key = 2 * (first_col + c);
      const MapTile* part = parts[static_cast<std::size_t>(2 * c / kTileCells)];
      tile.max[to] = std::numeric_limits<float>::quiet_NaN();
      tile.mean[to] = tile.max[to];
      if (part == nullptr) continue;
      const std::span<const float> means = part->values(MapPooling::mean);
      const Index seen = grid_.visible_pairs(
          queries_of_row, grid_.tokens(level, {first_col + c, first_col + c + 1}));
      if (seen == 0) continue;
      if (seen == whole && all_known) {  // four parts of equal weight: most of the map
        const auto at =
            static_cast<std::size_t>(below.begin % kTileCells * part->n_cols + key % kTileCells);
        const auto under = at + static_cast<std::size_t>(part->n_cols);
        tile.max[to] = std::max(std::max(part->max[at], part->max[at + 1]),
                                std::max(part->max[under], part->max[under + 1]));
        tile.mean[to] = 0.25F * ((means[at] + means[at + 1]) + (means[under] + means[under + 1]));
        continue;
      }
      double sum = 0.0;
      float max = 0.0F;
      Index pairs = 0;
      for (Index r = below.begin; r < below.end; ++r) {
        for (Index k = key; k < std::min(n_below, key + 2); ++k) {
          const auto at = static_cast<std::size_t>(r % kTileCells * part->n_cols + k % kTileCells);
          if (std::isnan(part->max[at])) continue;
          const Index n = grid_.visible_pairs(grid_.tokens(level - 1, {r, r + 1}),
                                              grid_.tokens(level - 1, {k, k + 1}));
          max = std::max(max, part->max[at]);
          sum += static_cast<double>(n) * static_cast<double>(means[at]);
          pairs += n;
        }
      }
      if (pairs == 0) continue;
      tile.max[to] = max;
      tile.mean[to] = static_cast<float>(sum / static_cast<double>(pairs));
    }
  }
}

std::optional<CellRange> MapOverview::next_rows(Index near, Index most,
                                                std::span<const CellRange> busy) const {
  const Index n = static_cast<Index>(state_.size());
  const auto is_open = [&](Index row) {
    const RowState state = state_[static_cast<std::size_t>(row)];
    const auto holds = [row](CellRange range) { return range.begin <= row && row < range.end; };
    return (state == RowState::pending || state == RowState::sampled) &&
           std::ranges::none_of(busy, holds);
  };
  const Index centre = std::clamp<Index>(near >> base_, 0, n - 1);
  for (Index distance = 0; distance < n; ++distance) {
    for (const Index row : {centre - distance, centre + distance}) {
      if (row < 0 || row >= n || !is_open(row)) continue;
      CellRange found{row, row + 1};
      while (found.size() < most && found.begin > 0 && row < centre && is_open(found.begin - 1)) {
        --found.begin;
      }
      while (found.size() < most && found.end < n && is_open(found.end)) ++found.end;
      return found;
    }
  }
  return std::nullopt;
}

std::size_t MapOverview::bytes() const {
  std::size_t sum = sizeof *this + state_.size();
  for (const auto& level : levels_) {
    for (const auto& tile : level) sum += tile ? tile->bytes() : sizeof tile;
  }
  return sum;
}

}  // namespace kvscope::gui
