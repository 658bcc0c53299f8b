// Figures and tables of the items of kvscope papers, drawn by the program's own commands into
// the report's folder.
#pragma once

#include <vector>

#include "analysis/cli/runs/papers_runner.hpp"
#include "analysis/papers/report.hpp"

namespace kvscope::cli {

/// Draws the pictures of an item whose results are there into items/ID/, unless the same were drawn
/// from the same before. A picture that cannot be drawn says why. Throws Interrupted.
std::vector<papers::DrawnPicture> draw_pictures(const papers::Item& item, PapersRunner& runner,
                                                const std::stop_token& stop);

/// The cells of a table in Markdown as kvscope table writes it, the header first; marks (**
/// and <u>) stay.
std::vector<std::vector<std::string>> markdown_cells(std::string_view markdown);

}  // namespace kvscope::cli
