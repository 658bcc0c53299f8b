// A paper table as LaTeX: booktabs rules, no other package, ready for \input.
#pragma once

#include <string>

#include "notebooks_export/paper_table.hpp"

namespace kvscope {

/// A table environment, or only the tabular without `floating`. Equal neighbours of an outer header
/// level share a \multicolumn over a \cmidrule; rows of equal outer keys form groups between rules;
/// bold is \textbf, second \underline.
std::string latex_table(const PaperTable& table, bool floating = true);

}  // namespace kvscope
