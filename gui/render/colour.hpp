// Colours of figures as Dear ImGui packs them.
#pragma once

#include <imgui.h>

#include <cmath>

#include "analysis/plot/colour.hpp"

namespace kvscope::gui {

/// Packed in the byte order of ImGui's vertices.
inline ImU32 packed(plot::Colour colour) {
  return IM_COL32(colour.r, colour.g, colour.b,
                  static_cast<int>(std::lround(255.0 * colour.alpha)));
}

}  // namespace kvscope::gui
