#include "gui/render/colour.hpp"

namespace kvscope::gui {

ImU32 packed(plot::Colour colour) {
  return IM_COL32(colour.r, colour.g, colour.b, colour.a);
}

}  // namespace kvscope::gui
