// Figures as SVG, written directly: text stays text that can be searched and edited, groups keep
// their names, and the same figure has the same bytes. (Cairo's SVG turns letters into outlines and
// numbers its parts by what else the process has drawn.)
#pragma once

#include <memory>
#include <string>

#include "notebooks_export/cairo_canvas.hpp"

namespace kvscope {

/// Letters are set in DejaVu Sans, or a relative of it, and stretched to the width they have there,
/// so that another font does not move anything. `title`: what a screen reader says.
std::unique_ptr<PageCanvas> make_svg_canvas(plot::Size size, const std::string& title);

}  // namespace kvscope
