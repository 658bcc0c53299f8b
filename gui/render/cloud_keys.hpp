// What a picture without axes needs beside its points: names of the marks, a bar for the colours,
// and three small axes.
#pragma once

#include <imgui.h>

#include <span>
#include <string>

#include "analysis/plot/figure.hpp"
#include "gui/model/geometry/orbit.hpp"
#include "gui/render/fonts.hpp"
#include "gui/render/look.hpp"

namespace kvscope::gui {

/// One name in a legend.
struct KeyEntry {
  std::string label;  // may hold formulas
  plot::Colour colour;
  plot::MarkerShape marker = plot::MarkerShape::circle;
};

/// Everything is drawn inside the rectangle; what does not fit is left out.
struct KeyPlace {
  ImDrawList& list;
  FontAtlas& fonts;
  const Look& look;
  ImVec2 low;
  ImVec2 high;
};

/// What points keep clear of: the bar at the right edge, and a line of entries.
float bar_width(const KeyPlace& place);
float entries_height(const KeyPlace& place);

/// Marks and names from the top left corner on, in as many lines as they need.
void draw_entries(const KeyPlace& place, std::span<const KeyEntry> entries);

/// A bar at the right edge with ticks and, above it, the axis' label. The axis must have a range.
void draw_colour_bar(const KeyPlace& place, const plot::ColourAxis& axis);

/// The data's axes as the orbit shows them, in the bottom left corner, with their names beside
/// them.
void draw_small_axes(const KeyPlace& place, const Orbit& orbit,
                     const std::array<std::string, 3>& labels);

}  // namespace kvscope::gui
