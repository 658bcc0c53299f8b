// Pictures with more pixels than the screen gives them.
#pragma once

#include "analysis/plot/canvas.hpp"

namespace kvscope::gui {

/// Every pixel of the result is the mean of the pixels that it covers, weighted by their opacity.
/// At most as large as the picture in both directions, at least one pixel.
plot::Image shrink_image(const plot::Image& image, int width, int height);

}  // namespace kvscope::gui
