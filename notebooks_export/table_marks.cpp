#include "notebooks_export/table_marks.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace kvscope {

namespace {

/// Whether the better of two is apart from the other: by their units, by its recorded interval, by
/// what is shown.
bool are_apart(const PaperCell& better, const PaperCell& other, MarkedBy& by) {
  if (better.text == other.text) return false;
  if (const auto interval = paired_interval_of(better.units, other.units)) {
    by.has_units = true;
    return interval->low > 0.0 || interval->high < 0.0;
  }
  if (better.low <= better.value && better.value <= better.high) {
    by.has_intervals = true;
    return !(better.low <= other.value && other.value <= better.high);
  }
  by.has_shown = true;
  return true;
}

/// Marks the best and the second of cells that compete.
void mark(std::vector<PaperCell*> cells, Better better, MarkedBy& by) {
  if (better == Better::neither || cells.size() < 2) return;
  std::ranges::stable_sort(cells, [&](const PaperCell* a, const PaperCell* b) {
    return better == Better::higher ? a->value > b->value : a->value < b->value;
  });
  /// No other cell from `first` on is as good.
  const auto is_alone = [&](std::size_t first) {
    return std::all_of(
        cells.begin() + static_cast<std::ptrdiff_t>(first) + 1, cells.end(),
        [&](const PaperCell* other) { return are_apart(*cells[first], *other, by); });
  };
  if (!is_alone(0)) {
    by.is_undecided = true;
    return;
  }
  cells[0]->mark = CellMark::best;
  if (is_alone(1)) cells[1]->mark = CellMark::second;
}

}  // namespace

MarkedBy mark_methods(PaperTable& table, const TableLayout& layout) {
  MarkedBy by;
  if (!layout.methods_in_rows && !layout.method_level) return by;
  // Cells compete that differ in the method only.
  std::map<std::vector<std::string>, std::pair<Better, std::vector<PaperCell*>>> rounds;
  for (PaperRow& row : table.rows) {
    for (std::size_t c = 0; c < row.cells.size(); ++c) {
      const RowRole role = layout.methods_in_rows ? row.role : layout.column_roles[c];
      const PaperCell& cell = row.cells[c];
      if (role != RowRole::method || std::isnan(cell.value) || cell.missed_cost || cell.keeps_all)
        continue;
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
  for (const auto& [round, competitors] : rounds) mark(competitors.second, competitors.first, by);
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
  return by;
}

}  // namespace kvscope
