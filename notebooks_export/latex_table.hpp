// A paper table as LaTeX: booktabs rules, no other package, ready for \input.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "notebooks_export/paper_table.hpp"

namespace kvscope {

/// How a table stands on the page.
struct LatexOptions {
  bool floating = true;             // a table environment; false: only the tabular
  bool wide = false;                // table*: over both columns of a page
  std::string size = "normalsize";  // a size of LaTeX: small, footnotesize, ...
};

/// Sizes that LatexOptions takes, the largest first.
inline constexpr std::array<std::string_view, 5> kLatexSizes = {
    "normalsize", "small", "footnotesize", "scriptsize", "tiny"};

/// Equal neighbours of an outer header
/// level share a \multicolumn over a \cmidrule; rows of equal outer keys form groups between rules;
/// bold is \textbf, second \underline.
std::string latex_table(const PaperTable& table, const LatexOptions& options = {});

}  // namespace kvscope
