// A figure in a rectangle of a window: drawn once, shown every frame, zoomed and asked with the
// mouse.
//
//   if (ImGui::Begin(...)) {
//     view_.show(figure, version, ImGui::GetContentRegionAvail(), {ground});
//     if (const auto& hit = view_.hit()) { tooltip of what is under the cursor; hit->clicked }
//   }
//
// Laying out and drawing (by Cairo, as for files) happen only when the figure (`version`), the
// size, the style or the zoom change; in between a frame shows one texture.
#pragma once

#include <imgui.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/plot/figure.hpp"
#include "analysis/plot/layout.hpp"
#include "analysis/plot/theme.hpp"
#include "gui/render/figure_pick.hpp"
#include "gui/render/fonts.hpp"
#include "gui/render/textures.hpp"

namespace kvscope::gui {

/// How a figure looks in a window.
struct FigureStyle {
  plot::Ground ground = plot::Ground::light;
  std::optional<plot::Colour> paper;  // instead of the theme's ground: the panel's own
  std::optional<double> text_em;      // pixels per em of axis labels [the body font's]
  bool zoomable = true;
  bool takes_wheel = true;  // else the window around it scrolls
  bool takes_lasso = false;
  bool operator==(const FigureStyle&) const = default;
};

/// The theme of figures on screen: paper's proportions, with letters as large as the interface's.
/// `pixels_per_point` turns its points into pixels.
struct ScreenTheme {
  plot::Theme theme;
  double pixels_per_point = 1.0;
};
ScreenTheme screen_theme(const FigureStyle& style, const FontAtlas& fonts);

/// A point that a lasso went around.
struct LassoedPoint {
  std::size_t mark = 0;  // in its panel's marks
  std::size_t of = 0;    // plot::Scatter::of
};

/// Mouse: the wheel zooms about the cursor (with Ctrl along x only, with Shift along y only),
/// dragging pans, with Alt it draws a lasso around points; a double click or R resets. Axes that
/// the figure shares move together.
class FigureView {
 public:
  /// Both must outlive the view.
  FigureView(FontAtlas& fonts, TextureStore& textures);
  ~FigureView();
  FigureView(FigureView&&) noexcept;
  FigureView& operator=(FigureView&&) noexcept;

  /// An item of the current ImGui window, `size` pixels large. `version` names the figure's
  /// content: another number means another figure. Zoom is kept as long as panels and ranges stay
  /// the same. A figure that cannot be drawn becomes a sentence in the middle.
  void show(const plot::Figure& figure, std::uint64_t version, ImVec2 size,
            const FigureStyle& style);

  /// Of the last show(); empty if the cursor is not in a panel.
  const std::optional<FigureHit>& hit() const;
  /// What a lasso went around that was closed in the last show(): of points that stand for
  /// something.
  const std::optional<std::vector<LassoedPoint>>& lasso() const;
  /// One is being drawn.
  bool draws_lasso() const;
  /// The sentence shown instead of the figure; empty if all is well.
  const std::string& problem() const;

  /// While a figure is zoomed or dragged, some of very many points are left out and large pictures
  /// have fewer pixels: frames follow until all is there.
  bool is_rough() const;
  static constexpr std::size_t kMostInMotion = 25'000;
  static constexpr double kMostPixelsInMotion = 300'000;

  bool is_zoomed() const;
  void reset_zoom();
  /// The figure with the ranges that are visible: what an export should draw. Throws ConfigError
  /// before the first show().
  plot::Figure current_figure() const;

  /// Where a place of the data is on screen; empty where it has none or nothing is drawn.
  std::optional<ImVec2> place(std::size_t panel, double x, double y) const;
  /// A panel's frame on screen, low and high corner; empty if nothing is drawn.
  struct ScreenRect {
    ImVec2 low;
    ImVec2 high;
  };
  std::optional<ScreenRect> frame(std::size_t panel) const;

  /// How often the figure was drawn anew, for tests and measurements.
  std::uint64_t n_recordings() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvscope::gui
