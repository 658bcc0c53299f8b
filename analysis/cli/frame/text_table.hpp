// A small table of text for people: numbers right, words left, two blanks between columns.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace kvscope::cli {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header) : header_(std::move(header)) {}
  /// Short rows are filled with empty cells.
  void add_row(std::vector<std::string> cells);
  /// Header, a rule, the rows; every line ends with a line break.
  std::string text() const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

/// Of layers with a sliding window, beside means over layers; empty if there are none.
std::string windows_left_out(std::size_t n_layers);

}  // namespace kvscope::cli
