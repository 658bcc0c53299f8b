#include "gui/panels/geometry_picture.hpp"

#include <fmt/format.h>
#include <imgui_internal.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <string>

#include "gui/model/results/compact_figure.hpp"

namespace kvscope::gui {

namespace {

constexpr float kDrag = 4.0f;        // pixels that make a click a drag
constexpr double kStillness = 0.12;  // seconds without motion until all points are drawn

/// Not all points have time while they turn.
std::size_t stride_in_motion(const GeometryScene& scene) {
  std::size_t n = 0;
  for (const SceneSet& set : scene.sets) n += set.at.size();
  return std::bit_ceil(std::max<std::size_t>(1, n / FigureView::kMostInMotion));
}

void draw_ring(const Look& look, ImDrawList& list, ImVec2 at, plot::Colour colour) {
  list.AddCircle(at, look.px(6), packed(plot::with_alpha(look.surface, 0.9)), 0, look.px(4));
  list.AddCircle(at, look.px(6), packed(colour), 0, look.px(2));
}

void draw_selected(PanelContext& context, ImDrawList& list, ImVec2 at, const char* name) {
  const Look& look = context.look;
  draw_ring(look, list, at, look.accent);
  ImFont* font = context.fonts.small();
  const ImVec2 words{std::floor(at.x + look.px(9)), std::floor(at.y - 0.5f * font->FontSize)};
  const ImVec2 extent = font->CalcTextSizeA(font->FontSize, FLT_MAX, 0.0f, name);
  list.AddRectFilled(words, {words.x + extent.x, words.y + extent.y},
                     packed(plot::with_alpha(look.surface, 0.8)), look.px(2));
  list.AddText(font, font->FontSize, words, packed(look.accent), name);
}

}  // namespace

GeometryHit GeometryPicture::show(PanelContext& context, const GeometryShown& shown) {
  show_figure(context, shown);
  GeometryHit out;
  const auto frame = view_.frame(0);
  if (!frame) return out;
  ImDrawList& list = *ImGui::GetWindowDrawList();
  list.PushClipRect(frame->low, frame->high, /*intersect_with_current_clip_rect=*/true);
  const auto mark_selected = [&](const std::optional<CloudPoint>& point, const char* name) {
    const auto at = point ? place(*point) : std::nullopt;
    if (at) draw_selected(context, list, *at, name);
  };
  for (const CloudPoint& point : shown.brushed) {
    const auto at = place(point);
    if (at) list.AddCircleFilled(*at, context.look.px(2.2f), packed(context.look.accent), 8);
  }
  for (const CloudPoint& point : shown.pointed) {
    if (const auto at = place(point)) draw_ring(context.look, list, *at, context.look.ink);
  }
  mark_selected(shown.key, "key");
  mark_selected(shown.query, "query");
  if (shown.is_3d) draw_turned_axes(context, frame->low, frame->high, list);
  list.PopClipRect();
  if (const auto& lasso = view_.lasso()) {
    out.lasso.emplace();
    for (const LassoedPoint& point : *lasso) {
      if (point.mark < shown.scene.sets.size())
        out.lasso->emplace_back(shown.scene.sets[point.mark].are_queries, point.of);
    }
  }
  const auto& hit = view_.hit();
  const bool turns = shown.is_3d && turn(frame->low, frame->high);
  if (turns) turned_at_ = ImGui::GetTime();
  if (turns || is_rough()) context.requests.redraw = true;
  if (turns || !hit || !hit->mark) return out;
  const std::size_t n_sets = shown.scene.sets.size();
  if (*hit->mark < n_sets && hit->of) {
    out.set = &shown.scene.sets[*hit->mark];
    out.slot = *hit->of;
  } else if (*hit->mark >= n_sets) {
    out.mean = !shown.scene.shows_keys || *hit->mark > n_sets;
  }
  out.clicked = hit->clicked && !(shown.is_3d && dragged_);
  return out;
}

void GeometryPicture::show_figure(PanelContext& context, const GeometryShown& shown) {
  const ImVec2 size = ImGui::GetContentRegionAvail();
  const bool is_little =
      size.x < context.look.px(kLittleWidth) || size.y < context.look.px(kLittleHeight);
  MadeOf now{.version = shown.version, .is_3d = shown.is_3d, .is_little = is_little};
  if (shown.is_3d) {
    now.orbit = orbit_;
    if (ImGui::GetTime() - turned_at_ < kStillness) now.stride = stride_in_motion(shown.scene);
  }
  if (figure_.panels.empty() || now != of_) {
    of_ = now;
    view_.renew();
    camera_.reset();
    if (shown.is_3d) camera_ = orbit_camera(shown.scene, orbit_);
    figure_ =
        shown.is_3d ? orbit_figure(shown.scene, orbit_, now.stride) : flat_figure(shown.scene);
    const auto& labels = shown.scene.short_labels;
    if (is_little) {
      figure_ = compact_figure(figure_, shown.is_3d ? "to the right" : labels[0],
                               shown.is_3d ? "upwards" : labels[1]);
    }
  }
  FigureStyle style{.ground = context.look.ground,
                    .paper = plot::with_alpha(context.look.surface, 0.0),
                    .zoomable = !shown.is_3d,
                    .takes_lasso = true};
  if (is_little) style.text_em = context.fonts.small_em();
  view_.show(context.fonts, context.textures, figure_, size, style);
}

std::optional<std::pair<plot::Range, plot::Range>> GeometryPicture::zoom() const {
  const auto figure = view_.is_zoomed() ? view_.current() : std::nullopt;
  if (!figure) return std::nullopt;
  const plot::Panel& panel = figure->panels.at(0);
  if (!panel.x.range || !panel.y.range) return std::nullopt;
  return std::pair(*panel.x.range, *panel.y.range);
}

void GeometryPicture::reset() {
  orbit_.reset();
  view_.reset_zoom();
}

std::optional<ImVec2> GeometryPicture::place(const CloudPoint& point) const {
  const auto at = camera_ ? camera_->project(point) : point;
  return view_.place(0, static_cast<double>(at[0]), static_cast<double>(at[1]));
}

/// Mouse on the orbit, whose item was the last one; true if it moved.
bool GeometryPicture::turn(ImVec2 low, ImVec2 high) {
  const ImGuiIO& io = ImGui::GetIO();
  const Orbit before = orbit_;
  const auto side = static_cast<double>(std::min(high.x - low.x, high.y - low.y));
  const bool over = ImGui::IsItemHovered() && io.MousePos.x >= low.x && io.MousePos.x < high.x &&
                    io.MousePos.y >= low.y && io.MousePos.y < high.y;
  if (over && io.MouseWheel != 0.0f) {
    const double x = static_cast<double>(io.MousePos.x - 0.5f * (low.x + high.x)) / side;
    const double y = -static_cast<double>(io.MousePos.y - 0.5f * (low.y + high.y)) / side;
    orbit_.zoom_at(x, y, std::pow(kWheelStep, static_cast<double>(io.MouseWheel)));
  }
  if (ImGui::IsItemActivated()) dragged_ = false;
  if (ImGui::IsItemActive() && !view_.draws_lasso() &&
      ImGui::IsMouseDragging(ImGuiMouseButton_Left, kDrag)) {
    dragged_ = true;
    const auto dx = static_cast<double>(io.MouseDelta.x);
    const auto dy = static_cast<double>(io.MouseDelta.y);
    if (io.KeyShift) {
      orbit_.shift(dx / side, -dy / side);
    } else {
      orbit_.rotate(dx, dy, side);
    }
  }
  // GLFW's code.
  const bool reset_key = over && !io.WantTextInput && !io.KeyCtrl && !io.KeyAlt &&
                         ImGui::IsKeyPressed('R', /*repeat=*/false);
  if (reset_key || (over && ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left))) orbit_.reset();
  return orbit_ != before;
}

/// The data's axes as the orbit shows them, in the bottom left corner.
void GeometryPicture::draw_turned_axes(const PanelContext& context, ImVec2 low, ImVec2 high,
                                       ImDrawList& list) const {
  const Look& look = context.look;
  const float length = look.px(34);
  const ImVec2 from{low.x + length + look.px(10), high.y - length - look.px(10)};
  if (high.y - low.y < 6.0f * length) return;  // they would hide the points
  ImFont* font = context.fonts.small();
  const auto [right, up, toward] = of_.orbit.axes();
  for (std::size_t c = 0; c < 3; ++c) {
    const auto dx = static_cast<float>(right[c]);
    const auto dy = -static_cast<float>(up[c]);
    const ImU32 ink = packed(plot::with_alpha(look.ink, 0.45 + 0.55 * (0.5 + 0.5 * toward[c])));
    const std::string name = fmt::format("PC{}", c + 1);
    const ImVec2 extent = font->CalcTextSizeA(font->FontSize, FLT_MAX, 0.0f, name.c_str());
    list.AddLine(from, {from.x + length * dx, from.y + length * dy}, ink, look.px(1.5f));
    list.AddText(font, font->FontSize,
                 {from.x + (length + look.px(9)) * dx - 0.5f * extent.x,
                  from.y + (length + look.px(9)) * dy - 0.5f * extent.y},
                 ink, name.c_str());
  }
}

}  // namespace kvscope::gui
