// A figure in a rectangle of a window: drawn once, shown every frame, zoomed and asked with the
// mouse.
//
//   if (ImGui::Begin(...)) {
//     view_.show(fonts, textures, figure, ImGui::GetContentRegionAvail(), {ground});
//     if (const auto& hit = view_.hit()) { tooltip of what is under the cursor; hit->clicked }
//   }
//
// Laying out and drawing (by Cairo, as for files) happen only when the figure (renew()), the size,
// the style or the zoom change; in between a frame shows one texture.
#pragma once

#include <imgui.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/plot/figure.hpp"
#include "analysis/plot/layout.hpp"
#include "analysis/plot/theme.hpp"
#include "gui/render/figure_pick.hpp"
#include "gui/render/figure_zoom.hpp"
#include "gui/render/fonts.hpp"
#include "gui/render/textures.hpp"
#include "gui/render/visible_figure.hpp"
#include "notebooks_export/cairo_canvas.hpp"

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
  /// At the beginning of a frame: nothing is shown yet.
  void begin() { is_shown_ = false; }
  /// The figure of the next show() has other contents. Zoom is kept as long as panels and ranges
  /// stay the same.
  void renew() { is_new_ = true; }
  /// An item of the current ImGui window, `size` pixels large. Both stores must outlive the view. A
  /// figure that cannot be drawn becomes a sentence in the middle.
  void show(FontAtlas& fonts, TextureStore& textures, const plot::Figure& figure, ImVec2 size,
            const FigureStyle& style);
  /// Since begin(), or in the last frame that drew it.
  bool is_shown() const { return is_shown_; }

  /// Of the last show(); empty if the cursor is not in a panel.
  const std::optional<FigureHit>& hit() const { return hit_; }
  /// What a lasso went around that was closed in the last show(): of points that stand for
  /// something.
  const std::optional<std::vector<LassoedPoint>>& lasso() const { return lassoed_; }
  /// One is being drawn.
  bool draws_lasso() const { return lasso_panel_.has_value(); }
  /// The sentence shown instead of the figure; empty if all is well.
  const std::string& problem() const {
    return figure_problem_.empty() ? layout_problem_ : figure_problem_;
  }

  /// While a figure is zoomed or dragged, some of very many points are left out and large pictures
  /// have fewer pixels: frames follow until all is there.
  bool is_rough() const { return is_shown_ && (thinning_ != Thinning{} || density_ != 1.0); }
  static constexpr std::size_t kMostInMotion = 25'000;
  static constexpr double kMostPixelsInMotion = 300'000;

  bool is_zoomed() const { return zoom_.is_zoomed(); }
  void reset_zoom();
  /// The figure with the ranges that are visible: what an export should draw. Empty if it is not
  /// shown.
  std::optional<plot::Figure> current() const;

  /// Where a place of the data is on screen; empty where it has none or nothing is drawn.
  std::optional<ImVec2> place(std::size_t panel, double x, double y) const;
  /// A panel's frame on screen, low and high corner; empty if nothing is drawn.
  struct ScreenRect {
    ImVec2 low;
    ImVec2 high;
  };
  std::optional<ScreenRect> frame(std::size_t panel) const;

  /// How often the figure was drawn anew, for tests and measurements.
  std::uint64_t n_recordings() const { return n_recordings_; }

 private:
  void set_figure(const plot::Figure& figure);
  std::vector<plot::PanelRanges> visible() const;
  plot::Layout lay_out(const plot::Figure& shown, plot::Size page);
  void record(bool in_motion, TextureStore& textures);
  void draw(const plot::Figure& shown, TextureStore& textures);
  void find_pieces(const std::string& rgba);
  ImVec2 from_corner(double x, double y) const;
  void show_picture(ImDrawList& list) const;
  void draw_problem(ImDrawList& list, const ImFont& font) const;
  plot::Point to_page(ImVec2 screen_place) const;
  ImVec2 to_screen(plot::Point page_place) const;
  std::optional<std::size_t> panel_at(plot::Point p) const;
  bool handle_zoom(bool hovered, bool active);
  bool has_points(std::size_t panel) const;
  void read_lasso();
  void draw_lasso(ImDrawList& list) const;
  void find_hit(bool hovered);
  void draw_highlight(ImDrawList& list) const;

  // what is shown
  bool is_shown_ = false;
  bool is_new_ = true;  // another figure than figure_ is to be shown
  plot::Figure figure_;
  FigureFacts facts_;
  FigureZoom zoom_;
  std::string figure_problem_;  // whatever its size

  // how it is drawn
  FigureStyle style_;
  ScreenTheme screen_;
  ImVec2 size_{0.0F, 0.0F};
  bool is_drawn_ = false;
  std::string layout_problem_;
  std::optional<plot::Layout> layout_;
  ImVec2 shift_{0.0F, 0.0F};            // of the figure in the rectangle, pixels
  std::vector<ScreenPicture> beneath_;  // under the page
  std::vector<Texture> beneath_textures_;
  Texture picture_;                 // of the page
  std::vector<ScreenRect> pieces_;  // of the picture, from its corner
  Thinning thinning_;               // of what is drawn
  double density_ = 1.0;            // of its pictures
  double moved_at_ = 0.0;
  std::uint64_t n_recordings_ = 0;

  // what the mouse does
  ImVec2 at_{0.0F, 0.0F};  // of the rectangle on screen
  std::optional<FigureHit> hit_;
  std::optional<std::size_t> dragged_panel_;
  bool dragged_far_ = false;
  std::optional<std::size_t> lasso_panel_;  // in which one is drawn
  std::vector<plot::Point> lasso_line_;     // on the page
  std::optional<std::vector<LassoedPoint>> lassoed_;
};

}  // namespace kvscope::gui
