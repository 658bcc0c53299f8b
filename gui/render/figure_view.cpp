#include "gui/render/figure_view.hpp"

#include <imgui_internal.h>

#include <algorithm>
#include <cmath>

#include "analysis/plot/data_range.hpp"
#include "analysis/plot/draw.hpp"
#include "core/base/error.hpp"
#include "gui/render/figure_zoom.hpp"
#include "gui/render/look.hpp"
#include "gui/render/visible_figure.hpp"
#include "notebooks_export/cairo_canvas.hpp"

namespace kvscope::gui {

namespace {

constexpr double kReach = 6.0;                // pixels from the cursor to a point
constexpr double kShownPerNotch = 1.0 / 1.2;  // of the visible range, per notch
constexpr float kDragThreshold = 4.0F;
constexpr double kStillness = 0.12;  // seconds without motion until all points are drawn
constexpr double kLassoStep = 2.0;   // pixels from corner to corner

/// Whether a point lies inside a closed line: a ray from it crosses the line an odd number of
/// times.
bool is_inside(const std::vector<plot::Point>& line, plot::Point p) {
  bool inside = false;
  for (std::size_t i = 0, j = line.size() - 1; i < line.size(); j = i++) {
    const plot::Point& a = line[i];
    const plot::Point& b = line[j];
    const bool crosses = (a.y > p.y) != (b.y > p.y);
    if (crosses && p.x < a.x + (p.y - a.y) * (b.x - a.x) / (b.y - a.y)) inside = !inside;
  }
  return inside;
}

}  // namespace

ScreenTheme screen_theme(const FigureStyle& style, const FontAtlas& fonts) {
  ScreenTheme screen;
  screen.theme = plot::make_theme(plot::Venue::icml, style.ground);
  const double em = style.text_em.value_or(fonts.body_em());
  screen.pixels_per_point = em / screen.theme.label_size;
  // ticks in a size that the atlas has, so that they are crisp
  screen.theme.tick_size = em * fonts.small_em() / fonts.body_em() / screen.pixels_per_point;
  screen.theme.margin = 3.0;
  if (style.paper) screen.theme.ground = *style.paper;
  return screen;
}

struct FigureView::Impl {
  Impl(FontAtlas& f, TextureStore& t) : fonts(f), textures(t) {}

  FontAtlas& fonts;
  TextureStore& textures;

  // what is shown
  plot::Figure figure;
  std::optional<std::uint64_t> version;
  FigureFacts facts;
  FigureZoom zoom;
  std::string figure_problem;  // whatever its size

  // how it is drawn
  FigureStyle style;
  ScreenTheme screen;
  ImVec2 size{0.0F, 0.0F};
  bool is_drawn = false;
  std::string layout_problem;
  std::optional<plot::Layout> layout;
  ImVec2 shift{0.0F, 0.0F};            // of the figure in the rectangle, pixels
  std::vector<ScreenPicture> beneath;  // under the page
  std::vector<Texture> beneath_textures;
  Texture picture;                 // of the page
  std::vector<ScreenRect> pieces;  // of the picture, from its corner
  Thinning thinning;               // of what is drawn
  double density = 1.0;            // of its pictures
  double moved_at = 0.0;
  std::uint64_t n_recordings = 0;

  // what the mouse does
  ImVec2 at{0.0F, 0.0F};  // of the rectangle on screen
  std::optional<FigureHit> hit;
  std::optional<std::size_t> dragged_panel;
  bool dragged_far = false;
  std::optional<std::size_t> lasso_panel;  // in which one is drawn
  std::vector<plot::Point> lasso_line;     // on the page
  std::optional<std::vector<LassoedPoint>> lassoed;

  void set_figure(const plot::Figure& new_figure, std::uint64_t new_version) {
    if (version == new_version) return;
    version = new_version;
    figure = new_figure;
    is_drawn = false;
    dragged_panel.reset();
    lasso_panel.reset();
    figure_problem.clear();
    try {
      plot::check_figure(figure);
      facts = FigureFacts(figure);
      zoom.set_figure(figure, facts.ranges);
    } catch (const Error& error) {
      figure_problem = error.what();
    }
  }

  std::vector<plot::PanelRanges> visible() const {
    std::vector<plot::PanelRanges> ranges = facts.ranges;
    for (std::size_t p = 0; p < ranges.size(); ++p) {
      ranges[p].x = zoom.visible(p, AxisOf::x);
      ranges[p].y = zoom.visible(p, AxisOf::y);
    }
    return ranges;
  }

  /// Fills the rectangle; panels with equal scales stay square, in its middle.
  plot::Layout lay_out(const plot::Figure& shown, plot::Size page) {
    const auto& metrics = figure_font_metrics();
    double width = page.w;
    plot::Layout made = plot::layout_figure(shown, width, page.h, screen.theme, metrics);
    for (int round = 0; round < 2; ++round) {
      double excess = 0.0;
      for (std::size_t p = 0; p < shown.panels.size(); ++p) {
        if (!shown.panels[p].equal_scales) return made;
        excess = std::max(excess, made.panels[p].frame.w - made.panels[p].frame.h);
      }
      if (excess < 0.5) break;
      width -= excess * std::min<double>(shown.columns, static_cast<double>(shown.panels.size()));
      made = plot::layout_figure(shown, width, page.h, screen.theme, metrics);
    }
    return made;
  }

  void record(bool in_motion) {
    is_drawn = true;
    thinning = {};
    density = 1.0;
    layout_problem.clear();
    layout.reset();
    if (!figure_problem.empty()) return;
    const double scale = screen.pixels_per_point;
    const plot::Size page{size.x / scale, size.y / scale};
    try {
      const auto ranges = visible();
      if (in_motion) thinning = thinning_to(figure, ranges, kMostInMotion);
      plot::Figure shown = figure_for_layout(figure, facts, ranges, thinning);
      set_columns(shown, best_columns(shown, page, screen.theme), ranges);
      layout = lay_out(shown, page);
      if (in_motion) density = density_for(figure, *layout, scale, kMostPixelsInMotion);
      fit_maps(figure, ranges, *layout, density * scale, shown);
      shift = {
          static_cast<float>(std::floor(0.5 * scale * (page.w - layout->size.w))),
          static_cast<float>(std::floor(0.5 * scale * std::max(0.0, page.h - layout->size.h)))};
      draw(shown);
      ++n_recordings;
    } catch (const ConfigError&) {
      layout.reset();
      layout_problem =
          "There is too little room for this figure here. Make its part of the "
          "window larger, or show fewer panels.";
    }
  }

  void draw(const plot::Figure& shown) {
    const auto width = static_cast<int>(size.x);
    const auto height = static_cast<int>(size.y);
    beneath.clear();
    const auto canvas = make_screen_canvas(width, height, {shift.x, shift.y},
                                           screen.pixels_per_point, density, beneath);
    plot::draw_figure(shown, *layout, screen.theme, *canvas, plot::PageFill::leave);
    const std::string rgba = canvas->finish();
    picture.set(textures, width, height, std::as_bytes(std::span(rgba)));
    find_pieces(rgba);
    beneath_textures.clear();
    for (const auto& [rect, clip, image] : beneath)
      beneath_textures.emplace_back().set(textures, image.width, image.height,
                                          std::as_bytes(std::span(image.rgba)));
  }

  /// The parts of the picture that are not empty: every layer of a large window costs milliseconds
  /// without a GPU.
  void find_pieces(const std::string& rgba) {
    constexpr int kSide = 16;
    pieces.clear();
    const int width = picture.width();
    const auto is_empty = [&](int x, int y) {
      const int right = std::min(x + kSide, width);
      for (int row = y; row < std::min(y + kSide, picture.height()); ++row) {
        const auto begin = 4 * (static_cast<std::size_t>(row) * static_cast<std::size_t>(width));
        for (int col = x; col < right; ++col) {
          if (rgba[begin + 4 * static_cast<std::size_t>(col) + 3] != 0) return false;
        }
      }
      return true;
    };
    for (int y = 0; y < picture.height(); y += kSide) {
      for (int x = 0, from = -1; x < width; x += kSide) {
        const bool empty = is_empty(x, y);
        if (!empty && from < 0) from = x;
        const bool ends = from >= 0 && (empty || x + kSide >= width);
        if (!ends) continue;
        const int right = empty ? x : width;
        pieces.push_back({{static_cast<float>(from), static_cast<float>(y)},
                          {static_cast<float>(right),
                           static_cast<float>(std::min(y + kSide, picture.height()))}});
        from = -1;
      }
    }
  }

  ImVec2 from_corner(double x, double y) const {
    return {at.x + static_cast<float>(x), at.y + static_cast<float>(y)};
  }

  void show_picture(ImDrawList& list) const {
    for (std::size_t i = 0; i < beneath.size(); ++i) {
      const auto& [rect, clip, _] = beneath[i];
      list.PushClipRect(from_corner(clip.x, clip.y), from_corner(clip.right(), clip.bottom()),
                        /*intersect=*/true);
      list.AddImage(beneath_textures[i].id(), from_corner(rect.x, rect.y),
                    from_corner(rect.right(), rect.bottom()));
      list.PopClipRect();
    }
    for (const auto& [low, high] : pieces) {
      list.AddImage(picture.id(), from_corner(low.x, low.y), from_corner(high.x, high.y),
                    {low.x / size.x, low.y / size.y}, {high.x / size.x, high.y / size.y});
    }
  }

  bool is_rough() const { return thinning != Thinning{} || density != 1.0; }

  const std::string& problem() const {
    return figure_problem.empty() ? layout_problem : figure_problem;
  }

  /// The problem's words, centred, in lines that fit.
  void draw_problem(ImDrawList& list) const {
    ImFont* font = fonts.body();
    const float wrap =
        std::max(40.0F, std::min(size.x - 2.0F * font->FontSize, 34.0F * font->FontSize));
    const std::string& words = problem();
    const ImVec2 extent = font->CalcTextSizeA(font->FontSize, FLT_MAX, wrap, words.c_str());
    const ImVec2 from{std::floor(at.x + 0.5F * (size.x - extent.x)),
                      std::floor(at.y + std::max(0.0F, 0.5F * (size.y - extent.y)))};
    list.PushClipRect(at, {at.x + size.x, at.y + size.y}, /*intersect=*/true);
    list.AddText(font, font->FontSize, from, packed(screen.theme.muted), words.c_str(), nullptr,
                 wrap);
    list.PopClipRect();
  }

  plot::Point to_page(ImVec2 screen_place) const {
    const double scale = screen.pixels_per_point;
    return {(screen_place.x - at.x - shift.x) / scale, (screen_place.y - at.y - shift.y) / scale};
  }
  ImVec2 to_screen(plot::Point page_place) const {
    const double scale = screen.pixels_per_point;
    return {at.x + shift.x + static_cast<float>(scale * page_place.x),
            at.y + shift.y + static_cast<float>(scale * page_place.y)};
  }

  std::optional<std::size_t> panel_at(plot::Point p) const {
    for (std::size_t i = 0; layout && i < layout->panels.size(); ++i) {
      if (layout->panels[i].frame.contains(p)) return i;
    }
    return std::nullopt;
  }

  /// Wheel, drag and keys; true if ranges may have changed.
  bool handle_zoom(bool hovered, bool active) {
    const ImGuiIO& io = ImGui::GetIO();
    bool changed = false;
    const plot::Point cursor = to_page(io.MousePos);
    const auto over = hovered ? panel_at(cursor) : std::nullopt;
    if (over && io.MouseWheel != 0.0F) {
      const plot::Rect& frame = layout->panels[*over].frame;
      const double factor = std::pow(kShownPerNotch, static_cast<double>(io.MouseWheel));
      if (!io.KeyShift) zoom.zoom(*over, AxisOf::x, (cursor.x - frame.x) / frame.w, factor);
      if (!io.KeyCtrl) zoom.zoom(*over, AxisOf::y, (frame.bottom() - cursor.y) / frame.h, factor);
      changed = true;
    }
    if (ImGui::IsItemActivated()) {
      dragged_panel = over;
      dragged_far = false;
    }
    if (active && !lasso_panel && ImGui::IsMouseDragging(ImGuiMouseButton_Left, kDragThreshold)) {
      dragged_far = true;
      if (dragged_panel && layout && (io.MouseDelta.x != 0.0F || io.MouseDelta.y != 0.0F)) {
        const plot::Rect& frame = layout->panels[*dragged_panel].frame;
        const double scale = screen.pixels_per_point;
        zoom.pan(*dragged_panel, AxisOf::x, -io.MouseDelta.x / (scale * frame.w));
        zoom.pan(*dragged_panel, AxisOf::y, io.MouseDelta.y / (scale * frame.h));
        changed = true;
      }
    }
    // GLFW's code.
    const bool reset_key = hovered && !io.WantTextInput && !io.KeyCtrl && !io.KeyAlt &&
                           ImGui::IsKeyPressed('R', /*repeat=*/false);
    const bool double_click = over && ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left);
    if ((reset_key || double_click) && zoom.is_zoomed()) {
      zoom.reset();
      changed = true;
    }
    return changed;
  }

  bool has_points(std::size_t panel) const {
    return std::ranges::any_of(figure.panels[panel].marks, [](const plot::Mark& mark) {
      const auto* points = std::get_if<plot::Scatter>(&mark);
      return points != nullptr && !points->of.empty();
    });
  }

  void read_lasso() {
    lassoed.reset();
    const plot::Point cursor = to_page(ImGui::GetIO().MousePos);
    if (ImGui::IsItemActivated()) {
      const bool is_alone = figure.panels.size() == 1;  // it may begin beside the frame
      lasso_panel = is_alone ? std::optional<std::size_t>(0) : panel_at(cursor);
      const bool takes = style.takes_lasso && ImGui::GetIO().KeyAlt;
      if (!takes || !lasso_panel || !has_points(*lasso_panel)) lasso_panel.reset();
      lasso_line.clear();
    }
    // Elsewhere when the button went up: nothing is around anything.
    if (!ImGui::IsItemActive() && !ImGui::IsItemDeactivated()) lasso_panel.reset();
    if (!lasso_panel) return;
    dragged_far = true;  // no click
    const double step = kLassoStep / screen.pixels_per_point;
    if (lasso_line.empty() ||
        std::hypot(cursor.x - lasso_line.back().x, cursor.y - lasso_line.back().y) >= step)
      lasso_line.push_back(cursor);
    if (!ImGui::IsItemDeactivated()) return;
    lassoed.emplace();
    const auto& marks = figure.panels[*lasso_panel].marks;
    for (std::size_t m = 0; m < marks.size(); ++m) {
      const auto* points = std::get_if<plot::Scatter>(&marks[m]);
      for (std::size_t i = 0; points != nullptr && i < points->of.size(); ++i) {
        const plot::PanelLayout& panel = layout->panels[*lasso_panel];
        const plot::Point at = panel.place(points->x[i], points->y[i]);
        if (panel.frame.contains(at) && is_inside(lasso_line, at))
          lassoed->push_back({m, points->of[i]});
      }
    }
    lasso_panel.reset();
  }

  void draw_lasso(ImDrawList& list) const {
    if (!lasso_panel) return;
    std::vector<ImVec2> line;
    for (const plot::Point& corner : lasso_line) line.push_back(to_screen(corner));
    const ImU32 ink = packed(screen.theme.highlight);
    list.AddPolyline(line.data(), static_cast<int>(line.size()), ink, ImDrawFlags_Closed, 1.5F);
  }

  void find_hit(bool hovered) {
    hit.reset();
    if (!layout || !hovered || (dragged_far && ImGui::IsItemActive())) return;
    const plot::Point cursor = to_page(ImGui::GetIO().MousePos);
    hit = figure_hit(figure, *layout, cursor, kReach / screen.pixels_per_point);
    if (!hit) return;
    hit->clicked = ImGui::IsItemDeactivated() && !dragged_far;
  }

  /// A ring around the point, or a frame around the cell, that is hit.
  void draw_highlight(ImDrawList& list) const {
    if (!hit || !hit->mark) return;
    const plot::PanelLayout& place = layout->panels[hit->panel];
    const plot::Mark& mark = figure.panels[hit->panel].marks[*hit->mark];
    const ImU32 ink = packed(screen.theme.highlight);
    const ImU32 halo = packed(plot::with_alpha(screen.theme.ground, 0.85));
    list.PushClipRect(to_screen({place.frame.x, place.frame.y}),
                      to_screen({place.frame.right(), place.frame.bottom()}), /*intersect=*/true);
    if (hit->point) {
      const ImVec2 centre = to_screen(place.place(hit->point_x, hit->point_y));
      const auto radius =
          static_cast<float>(1.6 * screen.theme.marker_radius * screen.pixels_per_point);
      list.AddCircle(centre, radius, halo, 0, 4.0F);
      list.AddCircle(centre, radius, ink, 0, 2.0F);
    } else if (const auto* map = std::get_if<plot::HeatMap>(&mark)) {
      const auto edge = [](plot::Range axis, Index n, Index i) {
        return axis.low + (axis.high - axis.low) * static_cast<double>(i) / static_cast<double>(n);
      };
      const ImVec2 a = to_screen(
          place.place(edge(map->x, map->n_cols, *hit->col), edge(map->y, map->n_rows, *hit->row)));
      const ImVec2 b = to_screen(place.place(edge(map->x, map->n_cols, *hit->col + 1),
                                             edge(map->y, map->n_rows, *hit->row + 1)));
      const ImVec2 low{std::round(std::min(a.x, b.x)), std::round(std::min(a.y, b.y))};
      const ImVec2 high{std::round(std::max(a.x, b.x)), std::round(std::max(a.y, b.y))};
      if (high.x - low.x >= 3.0F && high.y - low.y >= 3.0F) {
        list.AddRect({low.x - 1.0F, low.y - 1.0F}, {high.x + 1.0F, high.y + 1.0F}, halo);
        list.AddRect(low, high, ink);
      }
    }
    list.PopClipRect();
  }
};

FigureView::FigureView(FontAtlas& fonts, TextureStore& textures)
    : impl_(std::make_unique<Impl>(fonts, textures)) {}
FigureView::~FigureView() = default;
FigureView::FigureView(FigureView&&) noexcept = default;
FigureView& FigureView::operator=(FigureView&&) noexcept = default;

void FigureView::show(const plot::Figure& figure, std::uint64_t version, ImVec2 size,
                      const FigureStyle& style) {
  Impl& view = *impl_;
  size = {std::max(1.0F, std::floor(size.x)), std::max(1.0F, std::floor(size.y))};
  view.set_figure(figure, version);
  if (size.x != view.size.x || size.y != view.size.y || style != view.style) {
    view.is_drawn = false;
    view.lasso_panel.reset();
  }
  view.size = size;
  view.style = style;
  view.screen = screen_theme(style, view.fonts);

  ImGui::PushID(impl_.get());
  ImGui::InvisibleButton("figure", size);
  const ImVec2 corner = ImGui::GetItemRectMin();
  view.at = {std::floor(corner.x), std::floor(corner.y)};
  const bool hovered = ImGui::IsItemHovered();
  const bool active = ImGui::IsItemActive();
  if (hovered && style.takes_wheel) ImGui::SetItemUsingMouseWheel();
  const bool moves = style.zoomable && view.layout && view.handle_zoom(hovered, active);
  if (moves) view.moved_at = ImGui::GetTime();
  const bool is_late = view.is_rough() && ImGui::GetTime() - view.moved_at > kStillness;
  if (moves || is_late) view.is_drawn = false;
  if (!style.zoomable && ImGui::IsItemActivated()) view.dragged_far = false;

  if (!view.is_drawn) view.record(moves);
  ImDrawList& list = *ImGui::GetWindowDrawList();
  view.hit.reset();
  if (view.layout) {
    view.show_picture(list);
    view.read_lasso();
    view.find_hit(hovered);
    view.draw_highlight(list);
    view.draw_lasso(list);
  } else {
    view.draw_problem(list);
  }
  ImGui::PopID();
}

const std::optional<FigureHit>& FigureView::hit() const {
  return impl_->hit;
}

const std::optional<std::vector<LassoedPoint>>& FigureView::lasso() const {
  return impl_->lassoed;
}

bool FigureView::draws_lasso() const {
  return impl_->lasso_panel.has_value();
}

const std::string& FigureView::problem() const {
  return impl_->problem();
}

bool FigureView::is_rough() const {
  return impl_->is_rough();
}

bool FigureView::is_zoomed() const {
  return impl_->zoom.is_zoomed();
}

void FigureView::reset_zoom() {
  impl_->zoom.reset();
  impl_->is_drawn = false;
}

plot::Figure FigureView::current_figure() const {
  if (!impl_->version) throw ConfigError("there is no figure to export yet");
  plot::Figure figure = impl_->figure;
  impl_->zoom.apply(figure);
  return figure;
}

std::optional<ImVec2> FigureView::place(std::size_t panel, double x, double y) const {
  if (!impl_->layout || panel >= impl_->layout->panels.size()) return std::nullopt;
  const plot::Point at = impl_->layout->panels[panel].place(x, y);
  if (!std::isfinite(at.x + at.y)) return std::nullopt;
  return impl_->to_screen(at);
}

std::optional<FigureView::ScreenRect> FigureView::frame(std::size_t panel) const {
  if (!impl_->layout || panel >= impl_->layout->panels.size()) return std::nullopt;
  const plot::Rect& frame = impl_->layout->panels[panel].frame;
  return ScreenRect{impl_->to_screen({frame.x, frame.y}),
                    impl_->to_screen({frame.right(), frame.bottom()})};
}

std::uint64_t FigureView::n_recordings() const {
  return impl_->n_recordings;
}

}  // namespace kvscope::gui
