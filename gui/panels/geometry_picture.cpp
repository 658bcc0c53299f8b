#include "gui/panels/geometry_picture.hpp"

#include <fmt/format.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <string>

#include "gui/model/results/compact_figure.hpp"
#include "gui/render/colour.hpp"

namespace kvscope::gui {

namespace {

constexpr float kReach = 7.0f;  // points of the interface from the mouse to what it means
constexpr float kDrag = 4.0f;   // pixels that make a click a drag

PointStyle point_style(const Look& look, const Cloud& cloud) {
  return {look.surface, point_radius(cloud.at.size(), look.scale)};
}

void draw_selected(PanelContext& context, ImDrawList& list, ImVec2 at, const char* name) {
  const Look& look = context.look;
  list.AddCircle(at, look.px(6), packed(plot::with_alpha(look.surface, 0.9)), 0, look.px(4));
  list.AddCircle(at, look.px(6), packed(look.accent), 0, look.px(2));
  ImFont* font = context.fonts.small();
  const ImVec2 words{std::floor(at.x + look.px(9)), std::floor(at.y - 0.5f * font->FontSize)};
  const ImVec2 extent = font->CalcTextSizeA(font->FontSize, FLT_MAX, 0.0f, name);
  list.AddRectFilled(words, {words.x + extent.x, words.y + extent.y},
                     packed(plot::with_alpha(look.surface, 0.8)), look.px(2));
  list.AddText(font, font->FontSize, words, packed(look.accent), name);
}

}  // namespace

GeometryHit GeometryPicture::show(PanelContext& context, const GeometryShown& shown) {
  if (!points_) points_.emplace(context.textures);
  ImDrawList& list = *ImGui::GetWindowDrawList();
  list.ChannelsSplit(2);
  list.ChannelsSetCurrent(1);
  show_axes(context, shown);
  list.ChannelsSetCurrent(0);
  GeometryHit out;
  const auto frame = axes_->frame(0);
  if (!frame) {
    list.ChannelsMerge();
    return out;
  }
  const ImVec2 low{std::ceil(frame->low.x), std::ceil(frame->low.y)};
  const ImVec2 high{std::floor(frame->high.x), std::floor(frame->high.y)};
  points_->show(list, low, high, shown.cloud, shown.version, camera(shown, low),
                point_style(context.look, shown.cloud));
  list.ChannelsMerge();
  list.PushClipRect(frame->low, frame->high, /*intersect_with_current_clip_rect=*/true);
  if (shown.key) draw_selected(context, list, points_->place(*shown.key), "key");
  if (shown.query) draw_selected(context, list, points_->place(*shown.query), "query");
  if (shown.is_3d) draw_turned_axes(context, low, high, list);
  const auto& hit = axes_->hit();
  const bool turns = shown.is_3d && turn(low, high);
  if (hit && !turns) {
    out.mark = hit->mark;
    if (!out.mark) out.point = point_under_mouse(context, shown, list);
    out.clicked = hit->clicked && !(shown.is_3d && dragged_);
  }
  list.PopClipRect();
  if (points_->is_rough() || turns) context.requests.redraw = true;
  return out;
}

void GeometryPicture::show_axes(PanelContext& context, const GeometryShown& shown) {
  if (!axes_) axes_.emplace(context.fonts, context.textures);
  const ImVec2 size = ImGui::GetContentRegionAvail();
  const bool is_little =
      size.x < context.look.px(kLittleWidth) || size.y < context.look.px(kLittleHeight);
  const AxesOf now{shown.version, shown.is_3d, is_little, shown.is_3d ? orbit_ : Orbit()};
  if (axes_version_ == 0 || now != axes_of_) {
    axes_of_ = now;
    ++axes_version_;
    axes_figure_ =
        shown.is_3d ? orbit_figure(shown.scene, orbit_, /*with_points=*/false) : shown.frame;
    if (is_little) {
      const auto& labels = shown.scene.short_labels;
      axes_figure_ = compact_figure(axes_figure_, shown.is_3d ? "to the right" : labels[0],
                                    shown.is_3d ? "upwards" : labels[1]);
    }
  }
  FigureStyle style{.ground = context.look.ground,
                    .paper = plot::with_alpha(context.look.surface, 0.0),
                    .zoomable = !shown.is_3d};
  if (is_little) style.text_em = context.fonts.small_em();
  axes_->show(axes_figure_, axes_version_, size, style);
}

/// From the figure's own places on screen, which are linear.
Camera GeometryPicture::camera(const GeometryShown& shown, ImVec2 low) const {
  Camera camera;
  const auto from = axes_->place(0, 0.0, 0.0);
  const auto right = axes_->place(0, 1.0, 0.0);
  const auto up = axes_->place(0, 0.0, 1.0);
  if (!from || !right || !up) return camera;
  const auto difference = [](float a, float b) {
    return static_cast<double>(a) - static_cast<double>(b);
  };
  Camera in_axes{.right = {1.0, 0.0, 0.0}, .down = {0.0, 1.0, 0.0}, .toward = {}, .offset = {}};
  if (shown.is_3d) in_axes = orbit_camera(shown.scene, axes_of_.orbit);
  const double x_step = difference(right->x, from->x);
  const double y_step = difference(up->y, from->y);
  camera.toward = in_axes.toward;
  camera.offset = {difference(from->x, low.x) + x_step * in_axes.offset[0],
                   difference(from->y, low.y) + y_step * in_axes.offset[1], in_axes.offset[2]};
  for (std::size_t c = 0; c < 3; ++c) {
    camera.right[c] = x_step * in_axes.right[c];
    camera.down[c] = y_step * in_axes.down[c];
  }
  return camera;
}

std::optional<std::pair<plot::Range, plot::Range>> GeometryPicture::zoom() const {
  if (!axes_ || !axes_->is_zoomed()) return std::nullopt;
  const plot::Panel panel = axes_->current_figure().panels.at(0);
  if (!panel.x.range || !panel.y.range) return std::nullopt;
  return std::pair(*panel.x.range, *panel.y.range);
}

void GeometryPicture::reset() {
  orbit_.reset();
  if (axes_) axes_->reset_zoom();
}

std::optional<ImVec2> GeometryPicture::place(const CloudPoint& point) const {
  if (!points_) return std::nullopt;
  return points_->place(point);
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
  if (ImGui::IsItemActive() && ImGui::IsMouseDragging(ImGuiMouseButton_Left, kDrag)) {
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
  const auto [right, up, toward] = axes_of_.orbit.axes();
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

std::optional<std::size_t> GeometryPicture::point_under_mouse(PanelContext& context,
                                                              const GeometryShown& shown,
                                                              ImDrawList& list) {
  const auto found =
      points_->nearest(shown.cloud, ImGui::GetIO().MousePos, context.look.px(kReach));
  if (!found) return std::nullopt;
  list.AddCircle(points_->place(shown.cloud.at[*found]), context.look.px(4),
                 packed(context.look.ink), 0, context.look.px(1.5f));
  return found;
}

}  // namespace kvscope::gui
