// How the explorer looks: colours by role for both grounds, and the scale of everything.
#pragma once

#include <imgui.h>

#include <cmath>

#include "analysis/plot/theme.hpp"

namespace kvscope::gui {

struct Look {
  plot::Ground ground = plot::Ground::light;
  float scale = 1.0f;  // pixels per point of the interface; 1 on a screen of usual density

  plot::Colour window;   // behind everything
  plot::Colour surface;  // panels
  plot::Colour raised;   // headers, fields, popups
  plot::Colour line;     // hairlines between panels
  plot::Colour ink;
  plot::Colour muted;   // secondary words
  plot::Colour accent;  // the one colour that means "selected" and "here"
  plot::Colour warning;
  plot::Colour error;

  float px(float points) const { return points * scale; }
};

/// A colour of figures in the byte order of ImGui's vertices.
inline ImU32 packed(plot::Colour colour) {
  return IM_COL32(colour.r, colour.g, colour.b,
                  static_cast<int>(std::lround(255.0 * colour.alpha)));
}

Look make_look(plot::Ground ground, float scale);

/// Colours, spacings and roundings of Dear ImGui's own widgets.
void apply_look(const Look& look, ImGuiStyle& style);

}  // namespace kvscope::gui
