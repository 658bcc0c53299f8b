// A figure's marker as triangles with soft edges, made once and drawn at many places.
#pragma once

#include <imgui.h>

#include <vector>

#include "analysis/plot/canvas.hpp"

namespace kvscope::gui {

class MarkerStamp {
 public:
  /// `radius` in pixels. Small circles have fewer corners than large ones.
  MarkerStamp(plot::MarkerShape shape, double radius);
  void draw(ImDrawList& list, ImVec2 at, ImU32 colour) const;

 private:
  // the middle, then the corners half a pixel inside the outline, then half a pixel outside
  std::vector<ImVec2> places_;
  std::vector<ImDrawIdx> indices_;
};

}  // namespace kvscope::gui
