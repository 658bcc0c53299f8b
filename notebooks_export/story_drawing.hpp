// A step of a story as a still picture: title and note on the left, its panels on the right.
#pragma once

#include <string>
#include <vector>

#include "analysis/plot/figure.hpp"
#include "notebooks_export/story_cells.hpp"
#include "notebooks_export/story_kept.hpp"

namespace kvscope {

/// A head's map, computed for a picture.
struct DrawnMap {
  CellGrid grid;
  std::vector<float> weights;     // [rows, cols]
  std::optional<KeptCells> kept;  // of one method; what it drops is faded
  std::string words;              // above the map
  TokenRange shown;               // queries that are drawn; the rest stays blank
};

/// A text whose words are shaded.
struct DrawnText {
  std::vector<std::string> words;  // of the positions from `first` on
  Index first = 0;
  std::optional<Index> query;  // outlined
  std::vector<double> read;    // [words] weight that the query gives to each; may be empty
  std::vector<double> lost;    // [words] attention that a method loses there; may be empty
  std::string caption;
};

struct DrawnStep {
  std::string place;  // "2 of 4"
  std::string title;
  std::string note;
  std::vector<StoryMark> marks;
  std::vector<DrawnMap> maps;  // one, or the heads of an atlas side by side
  std::optional<DrawnText> text;
  std::optional<plot::Figure> figure;
};

/// 1280 x 720 pixels as PNG. Throws IoError without the figures' font.
std::string draw_story_step(const DrawnStep& step);

}  // namespace kvscope
