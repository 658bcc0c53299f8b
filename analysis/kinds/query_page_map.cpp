#include "analysis/kinds/query_page_map.hpp"

#include <algorithm>
#include <cassert>
#include <limits>

#include "core/attention/row_kernels.hpp"
#include "core/attention/visible.hpp"

namespace kvscope {

namespace {

std::vector<Index> multiples(Index first, Index n, Index size) {
  std::vector<Index> begins;
  for (Index i = 0; i < n; ++i) begins.push_back((first + i) * size);
  return begins;
}

}  // namespace

MapGrid::MapGrid(std::span<const Index> row_pos, Index n_heads, Index query_block, Index page_size)
    : row_pos_(row_pos.begin(), row_pos.end()),
      n_heads_(n_heads),
      query_block_(query_block),
      page_size_(page_size) {
  assert(!row_pos.empty() && n_heads > 0 && query_block > 0 && page_size > 0);
  first_block_ = row_pos.front() / query_block;
  n_blocks_ = row_pos.back() / query_block - first_block_ + 1;
  n_pages_ = row_pos.back() / page_size + 1;
  n_rows_.assign(static_cast<std::size_t>(n_blocks_), 0);
  for (Index pos : row_pos_) n_rows_[static_cast<std::size_t>(block_of(pos))] += n_heads_;
}

std::vector<Index> MapGrid::block_begins() const {
  return multiples(first_block_, n_blocks_, query_block_);
}

std::vector<Index> MapGrid::page_begins() const {
  return multiples(0, n_pages_, page_size_);
}

std::vector<Index> MapGrid::visible_counts(std::optional<Index> window) const {
  std::vector<Index> counts(static_cast<std::size_t>(n_cells()), 0);
  for (Index pos : row_pos_) {
    const TokenRange visible = visible_keys(pos, window);
    for (Index begin = visible.begin; begin < visible.end;) {
      const Index end = std::min(visible.end, (page_of(begin) + 1) * page_size_);
      counts[cell(block_of(pos), page_of(begin))] += (end - begin) * n_heads_;
      begin = end;
    }
  }
  return counts;
}

QueryPageMap::QueryPageMap(const MapGrid& grid)
    : grid_(grid),
      mass_(static_cast<std::size_t>(grid.n_cells())),
      n_kept_(static_cast<std::size_t>(grid.n_cells()), 0) {}

void QueryPageMap::add_row(Index pos, std::span<const double> probs, TokenRange visible) {
  const Index block = grid_.block_of(pos);
  for (Index begin = visible.begin; begin < visible.end;) {
    const Index page = grid_.page_of(begin);
    const Index end = std::min(visible.end, (page + 1) * grid_.page_size());
    const auto part = probs.subspan(static_cast<std::size_t>(begin - visible.begin),
                                    static_cast<std::size_t>(end - begin));
    mass_.add(grid_.cell(block, page), sum_of(part));
    add_count(n_kept_[grid_.cell(block, page)], end - begin);
    begin = end;
  }
}

void QueryPageMap::add_kept(Index pos, std::span<const double> probs, TokenRange visible,
                            std::span<const KeyPos> keys) {
  const Index block = grid_.block_of(pos);
  for (std::size_t i = 0; i < keys.size();) {
    const Index page = grid_.page_of(keys[i]);
    const std::size_t first = i;
    double mass = 0.0;
    for (; i < keys.size() && grid_.page_of(keys[i]) == page; ++i)
      mass += probs[static_cast<std::size_t>(keys[i] - visible.begin)];
    mass_.add(grid_.cell(block, page), mass);
    add_count(n_kept_[grid_.cell(block, page)], static_cast<std::int64_t>(i - first));
  }
}

std::vector<float> QueryPageMap::mean_mass(std::span<const Index> visible_counts) const {
  std::vector<float> cells(mass_.size(), std::numeric_limits<float>::quiet_NaN());
  for (Index block = 0; block < grid_.n_blocks(); ++block) {
    for (Index page = 0; page < grid_.n_pages(); ++page) {
      const std::size_t at = grid_.cell(block, page);
      if (visible_counts[at] == 0) continue;
      cells[at] = static_cast<float>(mass_.sum(at) / static_cast<double>(grid_.n_rows(block)));
    }
  }
  return cells;
}

std::vector<float> QueryPageMap::kept_share(std::span<const Index> visible_counts) const {
  std::vector<float> cells(n_kept_.size(), std::numeric_limits<float>::quiet_NaN());
  for (std::size_t at = 0; at < cells.size(); ++at) {
    if (visible_counts[at] == 0) continue;
    cells[at] = static_cast<float>(static_cast<double>(n_kept_[at]) /
                                   static_cast<double>(visible_counts[at]));
  }
  return cells;
}

}  // namespace kvscope
