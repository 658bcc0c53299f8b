// What is selected, drawn over a figure in the accent colour, or what is pointed at, in ink: rings
// around points, frames around cells. Cheap enough for every frame, so that a selection changes
// without drawing the figure anew.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "analysis/plot/figure.hpp"
#include "gui/panels/panel.hpp"
#include "gui/render/figure_view.hpp"

namespace kvscope::gui {

/// Clips what is drawn to the frame of one panel of the figure while it lives; does nothing if the
/// figure is not drawn.
class AccentMarks {
 public:
  AccentMarks(const PanelContext& context, const FigureView& view, std::size_t panel)
      : AccentMarks(context, view, panel, context.look.accent) {}
  AccentMarks(const PanelContext& context, const FigureView& view, std::size_t panel,
              plot::Colour colour);
  ~AccentMarks();
  AccentMarks(const AccentMarks&) = delete;
  AccentMarks& operator=(const AccentMarks&) = delete;

  /// A small filled square: one of many points that are selected.
  void dot(double x, double y);
  /// A cross: a point in the lasso.
  void cross(double x, double y);
  /// A ring: the one point that is selected.
  void ring(double x, double y);
  /// A frame around a rectangle of the data, or `inset` points inside its edges.
  void frame(plot::Range x, plot::Range y, float inset = 0.0f);

 private:
  const PanelContext& context_;
  const FigureView& view_;
  std::size_t panel_;
  ImU32 colour_;
  bool is_drawn_ = false;
};

/// Where a head is drawn on the first panel of a figure; nowhere for one that is not.
using CellOfHead =
    std::function<std::optional<std::pair<plot::Range, plot::Range>>(Index layer, Index q_head)>;
/// Frames around the selected head and around the one that is pointed at.
void frame_heads(const PanelContext& context, const FigureView& view, const CellOfHead& cell_of,
                 float inset);

/// Words about what is selected, behind a square of the accent colour, in lines that fit.
void accent_words(const PanelContext& context, const std::string& words);
/// The height that accent_words takes in the room there is, spacing included.
float accent_words_height(const std::string& words);

}  // namespace kvscope::gui
