// Figures as pgfplots code: \input-able, labels set by LaTeX, numbers in the file; heat maps and
// large clouds are images beside it.
#pragma once

#include <string>
#include <vector>

#include "analysis/plot/figure.hpp"
#include "analysis/plot/layout.hpp"
#include "analysis/plot/theme.hpp"

namespace kvscope {

/// A file to be written: its name without a folder, and its bytes.
struct OutputFile {
  std::string name;
  std::string bytes;
};

/// STEM.tex and the images STEM-N.png that it includes. Axes stand where `layout` put them; the
/// document needs \usepackage{pgfplots} and \usetikzlibrary{plotmarks}.
std::vector<OutputFile> pgfplots_files(const plot::Figure& figure, const plot::Layout& layout,
                                       const plot::Theme& theme, const std::string& stem);

}  // namespace kvscope
