#include "gui/render/colour.hpp"

#include <cmath>

namespace kvscope::gui {

ImU32 packed(plot::Colour colour) {
  return IM_COL32(colour.r, colour.g, colour.b,
                  static_cast<int>(std::lround(255.0 * colour.alpha)));
}

}  // namespace kvscope::gui
