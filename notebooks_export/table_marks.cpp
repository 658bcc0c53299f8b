#include "notebooks_export/table_marks.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

namespace kvscope {

namespace {

/// Marks the best and the second of cells that compete, by what they show and by their intervals.
/// Nothing is best where all tie, and nothing is second where all but the best do. True if a cell
/// shares a mark because the best of its kind may be no better.
bool mark(std::vector<PaperCell*> cells, Better better) {
  if (better == Better::neither || cells.size() < 2) return false;
  std::ranges::stable_sort(cells, [&](const PaperCell* a, const PaperCell* b) {
    return better == Better::higher ? a->value > b->value : a->value < b->value;
  });
  bool is_by_interval = false;
  /// How many cells from `first` on share its mark.
  const auto n_alike = [&](std::size_t first) {
    std::size_t n = 0;
    for (std::size_t i = first; i < cells.size(); ++i) {
      const bool shows_same = cells[i]->text == cells[first]->text;
      if (!shows_same &&
          !(cells[first]->low <= cells[i]->value && cells[i]->value <= cells[first]->high))
        break;
      is_by_interval = is_by_interval || !shows_same;
      ++n;
    }
    return n;
  };
  const std::size_t n_best = n_alike(0);
  if (n_best == cells.size()) return is_by_interval;
  const bool is_by_interval_so_far = is_by_interval;
  const std::size_t n_second = n_alike(n_best);
  const bool has_second = n_second == 1 || n_best + n_second < cells.size();
  if (!has_second) is_by_interval = is_by_interval_so_far;
  for (std::size_t i = 0; i < n_best; ++i) cells[i]->mark = CellMark::best;
  for (std::size_t i = n_best; has_second && i < n_best + n_second; ++i)
    cells[i]->mark = CellMark::second;
  return is_by_interval;
}

}  // namespace

bool mark_methods(PaperTable& table, const TableLayout& layout) {
  if (!layout.methods_in_rows && !layout.method_level) return false;
  // Cells compete that differ in the method only.
  std::map<std::vector<std::string>, std::pair<Better, std::vector<PaperCell*>>> rounds;
  for (PaperRow& row : table.rows) {
    for (std::size_t c = 0; c < row.cells.size(); ++c) {
      const RowRole role = layout.methods_in_rows ? row.role : layout.column_roles[c];
      const PaperCell& cell = row.cells[c];
      if (role != RowRole::method || std::isnan(cell.value) || cell.missed_cost) continue;
      if (layout.ranked_by[c] != c) continue;
      std::vector<std::string> round = row.keys;
      if (layout.methods_in_rows) round.pop_back();
      for (std::size_t l = 0; l < table.header.size(); ++l) {
        if (layout.methods_in_rows || l != *layout.method_level)
          round.push_back(table.header[l][c]);
      }
      auto& [better, cells] = rounds[round];
      better = layout.better[c];
      cells.push_back(&row.cells[c]);
    }
  }
  bool is_by_interval = false;
  for (const auto& [round, competitors] : rounds)
    is_by_interval = mark(competitors.second, competitors.first) || is_by_interval;
  for (PaperRow& row : table.rows) {
    for (std::size_t c = 0; c < row.cells.size(); ++c) {
      if (!std::isnan(row.cells[c].value)) row.cells[c].mark = row.cells[layout.ranked_by[c]].mark;
    }
  }
  for (PaperRow& row : table.rows) {  // the ranks of the others stay as they are
    for (PaperCell& cell : row.cells) {
      if (cell.is_doubted) cell.mark = CellMark::none;
    }
  }
  return is_by_interval;
}

}  // namespace kvscope
