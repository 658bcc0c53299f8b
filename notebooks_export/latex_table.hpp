// A paper table as LaTeX: booktabs rules, no other package, ready for \input.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "notebooks_export/paper_table.hpp"

namespace kvscope {

/// How a table stands on the page.
struct LatexOptions {
  bool floating = true;  // a table environment; false: only the tabular
  /// table*, over both columns of a page; empty: where one column (3.33 in) seems too narrow.
  std::optional<bool> wide;
  std::string size = "normalsize";  // a size of LaTeX: small, footnotesize, ...
};

/// Sizes that LatexOptions takes, the largest first.
inline constexpr std::array<std::string_view, 5> kLatexSizes = {
    "normalsize", "small", "footnotesize", "scriptsize", "tiny"};

inline constexpr double kLatexPage = 488.0;  // points of a page of two columns: 6.75 in

/// About how wide the table's letters and gaps are, in points.
double latex_width(const PaperTable& table, std::string_view size);

/// Equal neighbours of an outer header level share a \multicolumn over a \cmidrule; rows of equal
/// outer keys form groups between rules; bold is \textbf, second \underline.
std::string latex_table(const PaperTable& table, const LatexOptions& options = {});

}  // namespace kvscope
