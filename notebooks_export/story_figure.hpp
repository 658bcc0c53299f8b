// A figure inside a story's page: a drawing for each ground, what a screen reader says of it, and
// the numbers behind its marks at their places.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "notebooks_export/story.hpp"

namespace kvscope {

struct PageFigure {
  std::string html;  // two <img>, of which the page shows the one of its ground
  std::string alt;   // what it shows, in sentences
  /// {"width", "height", "marks": [[x, y, words], ...]} in points of the drawing.
  std::string marks;
};

/// The figure that kvscope figure makes of the results. Throws what making it throws, with the
/// step's name in front.
plot::Figure story_figure(const StoryFigure& figure, const std::string& step);

/// Throws ConfigError if it cannot be drawn.
PageFigure page_figure(const plot::Figure& figure);

}  // namespace kvscope
