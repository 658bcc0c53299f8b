// The figures of results inside an HTML page.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace kvscope {

struct PageFigure {
  std::string title;  // the result's file, without folders
  std::string html;   // two <img>, of which the page shows the one of its ground, and the caption
  std::string note;   // why there is no figure; then html is empty
};

/// Of each result the first figure that fits it, as the window's results panel chooses. Throws
/// IoError or FormatError for what is no result.
std::vector<PageFigure> page_figures(std::span<const std::filesystem::path> results);

}  // namespace kvscope
