// What is selected, drawn over a figure in the accent colour: rings around points, frames around
// cells. Cheap enough for every frame, so that a selection changes without drawing the figure anew.
#pragma once

#include <cstddef>
#include <string>

#include "analysis/plot/figure.hpp"
#include "gui/panels/panel.hpp"
#include "gui/render/figure_view.hpp"

namespace kvscope::gui {

/// Clips what is drawn to the frame of one panel of the figure while it lives; does nothing if the
/// figure is not drawn.
class AccentMarks {
 public:
  AccentMarks(const PanelContext& context, const FigureView& view, std::size_t panel);
  ~AccentMarks();
  AccentMarks(const AccentMarks&) = delete;
  AccentMarks& operator=(const AccentMarks&) = delete;

  /// A small filled square: one of many points that are selected.
  void dot(double x, double y);
  /// A ring: the one point that is selected.
  void ring(double x, double y);
  /// A frame around a rectangle of the data, or `inset` points inside its edges.
  void frame(plot::Range x, plot::Range y, float inset = 0.0f);

 private:
  const PanelContext& context_;
  const FigureView& view_;
  std::size_t panel_;
  bool is_drawn_ = false;
};

/// Words about what is selected, behind a square of the accent colour, in lines that fit.
void accent_words(const PanelContext& context, const std::string& words);
/// The height that accent_words takes in the room there is, spacing included.
float accent_words_height(const std::string& words);

}  // namespace kvscope::gui
