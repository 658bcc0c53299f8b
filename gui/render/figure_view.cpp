#include "gui/render/figure_view.hpp"

#include <imgui_internal.h>

#include <algorithm>
#include <cmath>

#include "analysis/plot/data_range.hpp"
#include "analysis/plot/draw.hpp"
#include "core/base/error.hpp"
#include "gui/render/look.hpp"

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

void FigureView::set_figure(const plot::Figure& figure) {
  is_new_ = false;
  figure_ = figure;
  is_drawn_ = false;
  dragged_panel_.reset();
  lasso_panel_.reset();
  figure_problem_.clear();
  try {
    plot::check_figure(figure_);
    facts_ = FigureFacts(figure_);
    zoom_.set_figure(figure_, facts_.ranges);
  } catch (const Error& error) {
    figure_problem_ = error.what();
  }
}

std::vector<plot::PanelRanges> FigureView::visible() const {
  std::vector<plot::PanelRanges> ranges = facts_.ranges;
  for (std::size_t p = 0; p < ranges.size(); ++p) {
    ranges[p].x = zoom_.visible(p, AxisOf::x);
    ranges[p].y = zoom_.visible(p, AxisOf::y);
  }
  return ranges;
}

/// Fills the rectangle; panels with equal scales stay square, in its middle.
plot::Layout FigureView::lay_out(const plot::Figure& shown, plot::Size page) {
  const auto& metrics = figure_font_metrics();
  double width = page.w;
  plot::Layout made = plot::layout_figure(shown, width, page.h, screen_.theme, metrics);
  for (int round = 0; round < 2; ++round) {
    double excess = 0.0;
    for (std::size_t p = 0; p < shown.panels.size(); ++p) {
      if (!shown.panels[p].equal_scales) return made;
      excess = std::max(excess, made.panels[p].frame.w - made.panels[p].frame.h);
    }
    if (excess < 0.5) break;
    width -= excess * std::min<double>(shown.columns, static_cast<double>(shown.panels.size()));
    made = plot::layout_figure(shown, width, page.h, screen_.theme, metrics);
  }
  return made;
}

void FigureView::record(bool in_motion, TextureStore& textures) {
  is_drawn_ = true;
  thinning_ = {};
  density_ = 1.0;
  layout_problem_.clear();
  layout_.reset();
  if (!figure_problem_.empty()) return;
  const double scale = screen_.pixels_per_point;
  const plot::Size page{size_.x / scale, size_.y / scale};
  try {
    const auto ranges = visible();
    if (in_motion) thinning_ = thinning_to(figure_, ranges, kMostInMotion);
    plot::Figure shown = figure_for_layout(figure_, facts_, ranges, thinning_);
    set_columns(shown, best_columns(shown, page, screen_.theme), ranges);
    layout_ = lay_out(shown, page);
    if (in_motion) density_ = density_for(figure_, *layout_, scale, kMostPixelsInMotion);
    fit_maps(figure_, ranges, *layout_, density_ * scale, shown);
    shift_ = {
        static_cast<float>(std::floor(0.5 * scale * (page.w - layout_->size.w))),
        static_cast<float>(std::floor(0.5 * scale * std::max(0.0, page.h - layout_->size.h)))};
    draw(shown, textures);
    ++n_recordings_;
  } catch (const ConfigError&) {
    layout_.reset();
    layout_problem_ =
        "There is too little room for this figure here. Make its part of the "
        "window larger, or show fewer panels.";
  }
}

void FigureView::draw(const plot::Figure& shown, TextureStore& textures) {
  const auto width = static_cast<int>(size_.x);
  const auto height = static_cast<int>(size_.y);
  beneath_.clear();
  const auto canvas = make_screen_canvas(width, height, {shift_.x, shift_.y},
                                         screen_.pixels_per_point, density_, beneath_);
  plot::draw_figure(shown, *layout_, screen_.theme, *canvas, plot::PageFill::leave);
  const std::string rgba = canvas->finish();
  picture_.set(textures, width, height, std::as_bytes(std::span(rgba)));
  find_pieces(rgba);
  beneath_textures_.clear();
  for (const auto& [rect, clip, image] : beneath_)
    beneath_textures_.emplace_back().set(textures, image.width, image.height,
                                         std::as_bytes(std::span(image.rgba)));
}

/// The parts of the picture that are not empty: every layer of a large window costs milliseconds
/// without a GPU.
void FigureView::find_pieces(const std::string& rgba) {
  constexpr int kSide = 16;
  pieces_.clear();
  const int width = picture_.width();
  const auto is_empty = [&](int x, int y) {
    const int right = std::min(x + kSide, width);
    for (int row = y; row < std::min(y + kSide, picture_.height()); ++row) {
      const auto begin = 4 * (static_cast<std::size_t>(row) * static_cast<std::size_t>(width));
      for (int col = x; col < right; ++col) {
        if (rgba[begin + 4 * static_cast<std::size_t>(col) + 3] != 0) return false;
      }
    }
    return true;
  };
  for (int y = 0; y < picture_.height(); y += kSide) {
    for (int x = 0, from = -1; x < width; x += kSide) {
      const bool empty = is_empty(x, y);
      if (!empty && from < 0) from = x;
      const bool ends = from >= 0 && (empty || x + kSide >= width);
      if (!ends) continue;
      const int right = empty ? x : width;
      pieces_.push_back({{static_cast<float>(from), static_cast<float>(y)},
                         {static_cast<float>(right),
                          static_cast<float>(std::min(y + kSide, picture_.height()))}});
      from = -1;
    }
  }
}

ImVec2 FigureView::from_corner(double x, double y) const {
  return {at_.x + static_cast<float>(x), at_.y + static_cast<float>(y)};
}

void FigureView::show_picture(ImDrawList& list) const {
  for (std::size_t i = 0; i < beneath_.size(); ++i) {
    const auto& [rect, clip, _] = beneath_[i];
    list.PushClipRect(from_corner(clip.x, clip.y), from_corner(clip.right(), clip.bottom()),
                      /*intersect=*/true);
    list.AddImage(beneath_textures_[i].id(), from_corner(rect.x, rect.y),
                  from_corner(rect.right(), rect.bottom()));
    list.PopClipRect();
  }
  for (const auto& [low, high] : pieces_) {
    list.AddImage(picture_.id(), from_corner(low.x, low.y), from_corner(high.x, high.y),
                  {low.x / size_.x, low.y / size_.y}, {high.x / size_.x, high.y / size_.y});
  }
}

/// The problem's words, centred, in lines that fit.
void FigureView::draw_problem(ImDrawList& list, const ImFont& font) const {
  const float wrap =
      std::max(40.0F, std::min(size_.x - 2.0F * font.FontSize, 34.0F * font.FontSize));
  const std::string& words = problem();
  const ImVec2 extent = font.CalcTextSizeA(font.FontSize, FLT_MAX, wrap, words.c_str());
  const ImVec2 from{std::floor(at_.x + 0.5F * (size_.x - extent.x)),
                    std::floor(at_.y + std::max(0.0F, 0.5F * (size_.y - extent.y)))};
  list.PushClipRect(at_, {at_.x + size_.x, at_.y + size_.y}, /*intersect=*/true);
  list.AddText(&font, font.FontSize, from, packed(screen_.theme.muted), words.c_str(), nullptr,
               wrap);
  list.PopClipRect();
}

plot::Point FigureView::to_page(ImVec2 screen_place) const {
  const double scale = screen_.pixels_per_point;
  return {(screen_place.x - at_.x - shift_.x) / scale, (screen_place.y - at_.y - shift_.y) / scale};
}
ImVec2 FigureView::to_screen(plot::Point page_place) const {
  const double scale = screen_.pixels_per_point;
  return {at_.x + shift_.x + static_cast<float>(scale * page_place.x),
          at_.y + shift_.y + static_cast<float>(scale * page_place.y)};
}

std::optional<std::size_t> FigureView::panel_at(plot::Point p) const {
  for (std::size_t i = 0; layout_ && i < layout_->panels.size(); ++i) {
    if (layout_->panels[i].frame.contains(p)) return i;
  }
  return std::nullopt;
}

/// Wheel, drag and keys; true if ranges may have changed.
bool FigureView::handle_zoom(bool hovered, bool active) {
  const ImGuiIO& io = ImGui::GetIO();
  bool changed = false;
  const plot::Point cursor = to_page(io.MousePos);
  const auto over = hovered ? panel_at(cursor) : std::nullopt;
  if (over && io.MouseWheel != 0.0F) {
    const plot::Rect& frame = layout_->panels[*over].frame;
    const double factor = std::pow(kShownPerNotch, static_cast<double>(io.MouseWheel));
    if (!io.KeyShift) zoom_.zoom(*over, AxisOf::x, (cursor.x - frame.x) / frame.w, factor);
    if (!io.KeyCtrl) zoom_.zoom(*over, AxisOf::y, (frame.bottom() - cursor.y) / frame.h, factor);
    changed = true;
  }
  if (ImGui::IsItemActivated()) {
    dragged_panel_ = over;
    dragged_far_ = false;
  }
  if (active && !lasso_panel_ && ImGui::IsMouseDragging(ImGuiMouseButton_Left, kDragThreshold)) {
    dragged_far_ = true;
    if (dragged_panel_ && layout_ && (io.MouseDelta.x != 0.0F || io.MouseDelta.y != 0.0F)) {
      const plot::Rect& frame = layout_->panels[*dragged_panel_].frame;
      const double scale = screen_.pixels_per_point;
      zoom_.pan(*dragged_panel_, AxisOf::x, -io.MouseDelta.x / (scale * frame.w));
      zoom_.pan(*dragged_panel_, AxisOf::y, io.MouseDelta.y / (scale * frame.h));
      changed = true;
    }
  }
  // GLFW's code.
  const bool reset_key = hovered && !io.WantTextInput && !io.KeyCtrl && !io.KeyAlt &&
                         ImGui::IsKeyPressed('R', /*repeat=*/false);
  const bool double_click = over && ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left);
  if ((reset_key || double_click) && zoom_.is_zoomed()) {
    zoom_.reset();
    changed = true;
  }
  return changed;
}

bool FigureView::has_points(std::size_t panel) const {
  return std::ranges::any_of(figure_.panels[panel].marks, [](const plot::Mark& mark) {
    const auto* points = std::get_if<plot::Scatter>(&mark);
    return points != nullptr && !points->of.empty();
  });
}

void FigureView::read_lasso() {
  lassoed_.reset();
  const plot::Point cursor = to_page(ImGui::GetIO().MousePos);
  if (ImGui::IsItemActivated()) {
    const bool is_alone = figure_.panels.size() == 1;  // it may begin beside the frame
    lasso_panel_ = is_alone ? std::optional<std::size_t>(0) : panel_at(cursor);
    const bool takes = style_.takes_lasso && ImGui::GetIO().KeyAlt;
    if (!takes || !lasso_panel_ || !has_points(*lasso_panel_)) lasso_panel_.reset();
    lasso_line_.clear();
  }
  // Elsewhere when the button went up: nothing is around anything.
  if (!ImGui::IsItemActive() && !ImGui::IsItemDeactivated()) lasso_panel_.reset();
  if (!lasso_panel_) return;
  dragged_far_ = true;  // no click
  const double step = kLassoStep / screen_.pixels_per_point;
  if (lasso_line_.empty() ||
      std::hypot(cursor.x - lasso_line_.back().x, cursor.y - lasso_line_.back().y) >= step)
    lasso_line_.push_back(cursor);
  if (!ImGui::IsItemDeactivated()) return;
  lassoed_.emplace();
  const auto& marks = figure_.panels[*lasso_panel_].marks;
  for (std::size_t m = 0; m < marks.size(); ++m) {
    const auto* points = std::get_if<plot::Scatter>(&marks[m]);
    for (std::size_t i = 0; points != nullptr && i < points->of.size(); ++i) {
      const plot::PanelLayout& panel = layout_->panels[*lasso_panel_];
      const plot::Point there = panel.place(points->x[i], points->y[i]);
      if (panel.frame.contains(there) && is_inside(lasso_line_, there))
        lassoed_->push_back({m, points->of[i]});
    }
  }
  lasso_panel_.reset();
}

void FigureView::draw_lasso(ImDrawList& list) const {
  if (!lasso_panel_) return;
  std::vector<ImVec2> line;
  for (const plot::Point& corner : lasso_line_) line.push_back(to_screen(corner));
  const ImU32 ink = packed(screen_.theme.highlight);
  list.AddPolyline(line.data(), static_cast<int>(line.size()), ink, ImDrawFlags_Closed, 1.5F);
}

void FigureView::find_hit(bool hovered) {
  hit_.reset();
  if (!layout_ || !hovered || (dragged_far_ && ImGui::IsItemActive())) return;
  const plot::Point cursor = to_page(ImGui::GetIO().MousePos);
  hit_ = figure_hit(figure_, *layout_, cursor, kReach / screen_.pixels_per_point);
  if (!hit_) return;
  hit_->clicked = ImGui::IsItemDeactivated() && !dragged_far_;
}

/// A ring around the point, or a frame around the cell, that is hit.
void FigureView::draw_highlight(ImDrawList& list) const {
  if (!hit_ || !hit_->mark) return;
  const plot::PanelLayout& place = layout_->panels[hit_->panel];
  const plot::Mark& mark = figure_.panels[hit_->panel].marks[*hit_->mark];
  const ImU32 ink = packed(screen_.theme.highlight);
  const ImU32 halo = packed(plot::with_alpha(screen_.theme.ground, 0.85));
  list.PushClipRect(to_screen({place.frame.x, place.frame.y}),
                    to_screen({place.frame.right(), place.frame.bottom()}), /*intersect=*/true);
  if (hit_->point) {
    const ImVec2 centre = to_screen(place.place(hit_->point_x, hit_->point_y));
    const auto radius =
        static_cast<float>(1.6 * screen_.theme.marker_radius * screen_.pixels_per_point);
    list.AddCircle(centre, radius, halo, 0, 4.0F);
    list.AddCircle(centre, radius, ink, 0, 2.0F);
  } else if (const auto* map = std::get_if<plot::HeatMap>(&mark)) {
    const auto edge = [](plot::Range axis, Index n, Index i) {
      return axis.low + (axis.high - axis.low) * static_cast<double>(i) / static_cast<double>(n);
    };
    const ImVec2 a = to_screen(
        place.place(edge(map->x, map->n_cols, *hit_->col), edge(map->y, map->n_rows, *hit_->row)));
    const ImVec2 b = to_screen(place.place(edge(map->x, map->n_cols, *hit_->col + 1),
                                           edge(map->y, map->n_rows, *hit_->row + 1)));
    const ImVec2 low{std::round(std::min(a.x, b.x)), std::round(std::min(a.y, b.y))};
    const ImVec2 high{std::round(std::max(a.x, b.x)), std::round(std::max(a.y, b.y))};
    if (high.x - low.x >= 3.0F && high.y - low.y >= 3.0F) {
      list.AddRect({low.x - 1.0F, low.y - 1.0F}, {high.x + 1.0F, high.y + 1.0F}, halo);
      list.AddRect(low, high, ink);
    }
  }
  list.PopClipRect();
}

void FigureView::show(FontAtlas& fonts, TextureStore& textures, const plot::Figure& figure,
                      ImVec2 size, const FigureStyle& style) {
  size = {std::max(1.0F, std::floor(size.x)), std::max(1.0F, std::floor(size.y))};
  if (is_new_) set_figure(figure);
  if (size.x != size_.x || size.y != size_.y || style != style_) {
    is_drawn_ = false;
    lasso_panel_.reset();
  }
  size_ = size;
  style_ = style;
  screen_ = screen_theme(style, fonts);
  is_shown_ = true;

  ImGui::PushID(this);
  ImGui::InvisibleButton("figure", size);
  const ImVec2 corner = ImGui::GetItemRectMin();
  at_ = {std::floor(corner.x), std::floor(corner.y)};
  const bool hovered = ImGui::IsItemHovered();
  const bool active = ImGui::IsItemActive();
  if (hovered && style.takes_wheel) ImGui::SetItemUsingMouseWheel();
  const bool moves = style.zoomable && layout_ && handle_zoom(hovered, active);
  if (moves) moved_at_ = ImGui::GetTime();
  const bool is_late = is_rough() && ImGui::GetTime() - moved_at_ > kStillness;
  if (moves || is_late) is_drawn_ = false;
  if (!style.zoomable && ImGui::IsItemActivated()) dragged_far_ = false;

  if (!is_drawn_) record(moves, textures);
  ImDrawList& list = *ImGui::GetWindowDrawList();
  hit_.reset();
  if (layout_) {
    show_picture(list);
    read_lasso();
    find_hit(hovered);
    draw_highlight(list);
    draw_lasso(list);
  } else {
    draw_problem(list, *fonts.body());
  }
  ImGui::PopID();
}

void FigureView::reset_zoom() {
  zoom_.reset();
  is_drawn_ = false;
}

std::optional<plot::Figure> FigureView::current() const {
  if (!is_shown_) return std::nullopt;
  plot::Figure figure = figure_;
  zoom_.apply(figure);
  return figure;
}

std::optional<ImVec2> FigureView::place(std::size_t panel, double x, double y) const {
  if (!is_shown_ || !layout_ || panel >= layout_->panels.size()) return std::nullopt;
  const plot::Point at = layout_->panels[panel].place(x, y);
  if (!std::isfinite(at.x + at.y)) return std::nullopt;
  return to_screen(at);
}

std::optional<FigureView::ScreenRect> FigureView::frame(std::size_t panel) const {
  if (!is_shown_ || !layout_ || panel >= layout_->panels.size()) return std::nullopt;
  const plot::Rect& frame = layout_->panels[panel].frame;
  return ScreenRect{to_screen({frame.x, frame.y}), to_screen({frame.right(), frame.bottom()})};
}

}  // namespace kvscope::gui
