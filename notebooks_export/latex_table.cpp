#include "notebooks_export/latex_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/escape.hpp"
#include "core/base/utf8.hpp"

namespace kvscope {

namespace {

using Texts = std::vector<std::string>;

/// Negative numbers, dashes and signs as mathematics sets them.
std::string tex_number(const std::string& text) {
  if (text == "-") return "--";
  if (text == "inf") return "$\\infty$";
  if (text == "-inf") return "$-\\infty$";
  if (text.starts_with("-")) return "$-$" + tex_escape(text.substr(1));
  if (text.starts_with("+")) return "$+$" + tex_escape(text.substr(1));
  return tex_escape(text);
}

std::string spread_text(const std::string& spread) {
  std::string text;
  for (const char c : tex_escape(spread)) {
    if (c == '-') {
      text += "$-$";
    } else {
      text += c;
    }
  }
  return text.empty() ? text : fmt::format(" {{\\scriptsize {}}}", text);
}

std::string cell_text(const PaperCell& cell) {
  std::string number = tex_number(cell.text);
  if (cell.missed_cost) number += "$^\\dagger$";
  const std::string spread = spread_text(cell.spread);
  switch (cell.mark) {
    case CellMark::best:
      return fmt::format("\\textbf{{{}}}{}", number, spread);
    case CellMark::second:
      return fmt::format("\\underline{{{}}}{}", number, spread);
    case CellMark::none:
      break;
  }
  return number + spread;
}

/// A header level with equal neighbours joined, and the rules below the joined ones.
std::pair<std::string, std::string> joined_level(const PaperTable& table, std::size_t level) {
  const Texts& texts = table.header[level];
  const std::size_t n_heads = table.row_heads.size();
  std::string line(n_heads == 0 ? 0 : n_heads - 1, '&');
  std::string rules;
  line += tex_escape(table.level_titles[level]);
  for (std::size_t first = 0; first < texts.size();) {
    std::size_t last = first + 1;
    const auto continues = [&](std::size_t c) {
      for (std::size_t l = 0; l <= level; ++l) {
        if (table.header[l][c] != table.header[l][first]) return false;
      }
      return true;
    };
    while (last < texts.size() && continues(last)) ++last;
    line +=
        fmt::format(" & \\multicolumn{{{}}}{{c}}{{{}}}", last - first, tex_escape(texts[first]));
    rules += fmt::format("{}\\cmidrule(lr){{{}-{}}}", rules.empty() ? "" : " ", n_heads + first + 1,
                         n_heads + last);
    first = last;
  }
  return {line, rules};
}

void add_header(const PaperTable& table, std::string& out) {
  for (std::size_t l = 0; l + 1 < table.header.size(); ++l) {
    const auto [line, rules] = joined_level(table, l);
    out += fmt::format("    {} \\\\\n    {}\n", line, rules);
  }
  Texts cells;
  for (const std::string& head : table.row_heads) cells.push_back(tex_escape(head));
  if (!table.header.empty()) {
    for (const std::string& text : table.header.back()) cells.push_back(tex_escape(text));
  }
  out += fmt::format("    {} \\\\\n", fmt::join(cells, " & "));
}

bool starts_group(const PaperTable& table, std::size_t r) {
  const Texts& keys = table.rows[r].keys;
  const Texts& before = table.rows[r - 1].keys;
  if (keys.size() == 1) return table.rows[r].role != table.rows[r - 1].role;
  return !std::equal(keys.begin(), keys.end() - 1, before.begin());
}

void add_rows(const PaperTable& table, std::string& out) {
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    const PaperRow& row = table.rows[r];
    const bool is_first = r == 0 || starts_group(table, r);
    if (is_first && r > 0) out += "    \\midrule\n";
    Texts cells;
    for (std::size_t k = 0; k < row.keys.size(); ++k) {
      const bool repeats = k + 1 < row.keys.size() && !is_first;  // a group's name stands once
      cells.push_back(repeats ? "" : tex_escape(row.keys[k]));
    }
    for (const PaperCell& cell : row.cells) cells.push_back(cell_text(cell));
    out += fmt::format("    {} \\\\\n", fmt::join(cells, " & "));
  }
}

}  // namespace

double latex_width(const PaperTable& table, std::string_view size) {
  constexpr double kLetter = 5.0;    // points of a digit of 10 points
  constexpr double kSpread = 3.6;    // of one in \scriptsize
  constexpr double kBetween = 12.0;  // two \tabcolsep
  constexpr double kScales[] = {1.0, 0.9, 0.8, 0.7, 0.5};
  double letters = 0.0;
  for (std::size_t k = 0; k < table.row_heads.size(); ++k) {
    std::size_t most = count_code_points(table.row_heads[k]);
    for (const PaperRow& row : table.rows) most = std::max(most, count_code_points(row.keys[k]));
    letters += kLetter * static_cast<double>(most);
  }
  const std::size_t n_columns = table.rows.empty() ? 0 : table.rows.front().cells.size();
  for (std::size_t c = 0; c < n_columns; ++c) {
    double most = 0.0;
    if (!table.header.empty())
      most = kLetter * static_cast<double>(count_code_points(table.header.back()[c]));
    for (const PaperRow& row : table.rows) {
      const PaperCell& cell = row.cells[c];
      most = std::max(most, kLetter * static_cast<double>(count_code_points(cell.text)) +
                                kSpread * static_cast<double>(count_code_points(cell.spread)));
    }
    letters += most;
  }
  const auto at = std::ranges::find(kLatexSizes, size) - kLatexSizes.begin();
  return letters * kScales[at] + kBetween * static_cast<double>(table.row_heads.size() + n_columns);
}

std::string latex_table(const PaperTable& table, const LatexOptions& options) {
  constexpr double kColumn = 240.0;  // points
  const std::size_t n_columns = table.rows.empty() ? 0 : table.rows.front().cells.size();
  std::string out = "% needs \\usepackage{booktabs}\n";
  const bool is_wide = options.wide.value_or(latex_width(table, options.size) > kColumn);
  const std::string environment = is_wide ? "table*" : "table";
  if (options.floating) {
    out += fmt::format("\\begin{{{}}}[t]\n  \\centering\n", environment);
    if (options.size != "normalsize") out += fmt::format("  \\{}\n", options.size);
    std::string caption = tex_escape(table.caption);
    if (!table.note.empty()) caption += (caption.empty() ? "" : " ") + tex_escape(table.note);
    // a caption above the rule needs room below it, which plain article does not leave
    if (!caption.empty()) out += fmt::format("  \\caption{{{}}}\n  \\vspace{{0.5ex}}\n", caption);
    if (!table.label.empty()) out += fmt::format("  \\label{{{}}}\n", table.label);
  }
  out += fmt::format("  \\begin{{tabular}}{{{}{}}}\n    \\toprule\n",
                     std::string(table.row_heads.size(), 'l'), std::string(n_columns, 'r'));
  add_header(table, out);
  out += "    \\midrule\n";
  add_rows(table, out);
  out += "    \\bottomrule\n  \\end{tabular}\n";
  if (options.floating) out += fmt::format("\\end{{{}}}\n", environment);
  return out;
}

}  // namespace kvscope
