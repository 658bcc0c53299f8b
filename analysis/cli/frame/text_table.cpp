#include "analysis/cli/frame/text_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/utf8.hpp"

namespace kvscope::cli {

namespace {

bool is_number_like(const std::string& text) {
  return text.empty() || text == "-" || text.find_first_of("0123456789") == 0 ||
         (text.size() > 1 && text[0] == '-' && text.find_first_of("0123456789") == 1);
}

}  // namespace

void TextTable::add_row(std::vector<std::string> cells) {
  cells.resize(header_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::text() const {
  const std::size_t n = header_.size();
  std::vector<std::size_t> width(n);
  std::vector<bool> right(n, true);
  for (std::size_t c = 0; c < n; ++c) {
    width[c] = count_code_points(header_[c]);
    for (const auto& row : rows_) {
      width[c] = std::max(width[c], count_code_points(row[c]));
      right[c] = right[c] && is_number_like(row[c]);
    }
  }
  std::string out;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t c = 0; c < n; ++c) {
      if (c > 0) line += "  ";
      const std::string gap(width[c] - count_code_points(cells[c]), ' ');
      line += right[c] ? gap + cells[c] : cells[c] + gap;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  add_line(header_);
  std::vector<std::string> rule;
  for (std::size_t c = 0; c < n; ++c) rule.emplace_back(width[c], '-');
  add_line(rule);
  for (const auto& row : rows_) add_line(row);
  return out;
}

std::string windows_left_out(std::size_t n_layers) {
  if (n_layers == 0) return "";
  return fmt::format("{} layer{} with a sliding window {} not in the means, and count as dense.\n",
                     n_layers, n_layers == 1 ? "" : "s", n_layers == 1 ? "is" : "are");
}

}  // namespace kvscope::cli
