// Colours of figures as Dear ImGui packs them.
#pragma once

#include <imgui.h>

#include "analysis/plot/colour.hpp"

namespace kvscope::gui {

/// Packed in the byte order of ImGui's vertices.
ImU32 packed(plot::Colour colour);

}  // namespace kvscope::gui
