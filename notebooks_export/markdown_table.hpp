// A paper table as Markdown (pipes) and as CSV.
#pragma once

#include <string>

#include "notebooks_export/paper_table.hpp"

namespace kvscope {

/// Header levels share one line ("Llama / 4k"); best is **bold**, second <u>underlined</u>; numbers
/// are right-aligned, columns padded to equal width. Caption above, note below, if there are any.
std::string markdown_table(const PaperTable& table);

/// One line per row: its keys, then the unrounded values, empty where there is none. Marks and
/// spreads are left out.
std::string csv_table(const PaperTable& table);

}  // namespace kvscope
