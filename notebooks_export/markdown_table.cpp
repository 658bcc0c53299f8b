#include "notebooks_export/markdown_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/csv_text.hpp"
#include "core/base/escape.hpp"
#include "core/base/utf8.hpp"

namespace kvscope {

namespace {

using Texts = std::vector<std::string>;

std::string markdown_cell(const PaperCell& cell) {
  std::string text = cell.text;
  if (cell.mark == CellMark::best) text = fmt::format("**{}**", text);
  if (cell.mark == CellMark::second) text = fmt::format("<u>{}</u>", text);
  if (cell.missed_cost) text += "†";
  return cell.spread.empty() ? text : fmt::format("{} {}", text, markdown_escape(cell.spread));
}

/// The column's header in one line.
std::string column_title(const PaperTable& table, std::size_t column) {
  Texts parts;
  for (const Texts& level : table.header) parts.push_back(level[column]);
  return fmt::format("{}", fmt::join(parts, " / "));
}

std::size_t n_columns(const PaperTable& table) {
  return table.rows.empty() ? 0 : table.rows.front().cells.size();
}

}  // namespace

std::string markdown_table(const PaperTable& table) {
  const std::size_t n_heads = table.row_heads.size();
  std::vector<Texts> lines(1);
  for (const std::string& head : table.row_heads) lines[0].push_back(markdown_escape(head));
  for (std::size_t c = 0; c < n_columns(table); ++c)
    lines[0].push_back(markdown_escape(column_title(table, c)));
  for (const PaperRow& row : table.rows) {
    Texts cells;
    for (const std::string& key : row.keys) cells.push_back(markdown_escape(key));
    for (const PaperCell& cell : row.cells) cells.push_back(markdown_cell(cell));
    lines.push_back(std::move(cells));
  }
  std::vector<std::size_t> widths(lines[0].size(), 3);
  for (const Texts& line : lines) {
    for (std::size_t c = 0; c < line.size(); ++c)
      widths[c] = std::max(widths[c], count_code_points(line[c]));
  }
  std::string out;
  if (!table.caption.empty()) out += markdown_escape(table.caption) + "\n\n";
  for (std::size_t l = 0; l < lines.size(); ++l) {
    for (std::size_t c = 0; c < lines[l].size(); ++c) {
      const std::string padding(widths[c] - count_code_points(lines[l][c]), ' ');
      out += c < n_heads ? fmt::format("| {}{} ", lines[l][c], padding)
                         : fmt::format("| {}{} ", padding, lines[l][c]);
    }
    out += "|\n";
    if (l > 0) continue;
    for (std::size_t c = 0; c < widths.size(); ++c)
      out += c < n_heads ? fmt::format("|:{}", std::string(widths[c] + 1, '-'))
                         : fmt::format("|{}:", std::string(widths[c] + 1, '-'));
    out += "|\n";
  }
  if (!table.note.empty()) out += "\n" + markdown_escape(table.note) + "\n";
  return out;
}

std::string csv_table(const PaperTable& table) {
  Texts fields;
  for (const std::string& head : table.row_heads) fields.push_back(csv_field(head));
  for (std::size_t c = 0; c < n_columns(table); ++c)
    fields.push_back(csv_field(column_title(table, c)));
  std::string out = fmt::format("{}\n", fmt::join(fields, ","));
  for (const PaperRow& row : table.rows) {
    fields.clear();
    for (const std::string& key : row.keys) fields.push_back(csv_field(key));
    for (const PaperCell& cell : row.cells) fields.push_back(csv_number(cell.value));
    out += fmt::format("{}\n", fmt::join(fields, ","));
  }
  return out;
}

}  // namespace kvscope
