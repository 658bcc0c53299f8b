#include "gui/panels/geometry_picture.hpp"

#include <imgui_internal.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "gui/model/results/compact_figure.hpp"
#include "gui/render/colour.hpp"
#include "gui/render/marker_stamp.hpp"

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
  const GeometryHit hit = shown.is_3d ? show_orbit(context, shown) : show_flat(context, shown);
  if (points_->is_rough()) context.requests.redraw = true;
  return hit;
}

std::optional<std::pair<plot::Range, plot::Range>> GeometryPicture::zoom() const {
  if (!flat_ || !flat_->is_zoomed()) return std::nullopt;
  const plot::Panel panel = flat_->current_figure().panels.at(0);
  if (!panel.x.range || !panel.y.range) return std::nullopt;
  return std::pair(*panel.x.range, *panel.y.range);
}

void GeometryPicture::reset() {
  orbit_.reset();
  if (flat_) flat_->reset_zoom();
}

std::optional<ImVec2> GeometryPicture::place(const CloudPoint& point) const {
  if (!points_) return std::nullopt;
  return points_->place(point);
}

/// Axes, legend and colour bar are a figure's; the points lie below its marks, as a texture.
GeometryHit GeometryPicture::show_flat(PanelContext& context, const GeometryShown& shown) {
  if (!flat_) flat_.emplace(context.fonts, context.textures);
  FigureStyle style{.ground = context.look.ground,
                    .paper = plot::with_alpha(context.look.surface, 0.0)};
  ImDrawList& list = *ImGui::GetWindowDrawList();
  list.ChannelsSplit(2);
  list.ChannelsSetCurrent(1);
  const ImVec2 size = ImGui::GetContentRegionAvail();
  const bool little =
      size.x < context.look.px(kLittleWidth) || size.y < context.look.px(kLittleHeight);
  if (little) {
    style.text_em = context.fonts.small_em();
    const auto& labels = shown.scene.short_labels;
    flat_->show(compact_figure(shown.frame, labels[0], labels[1]), 2 * shown.version + 1, size,
                style);
  } else {
    flat_->show(shown.frame, 2 * shown.version, size, style);
  }
  list.ChannelsSetCurrent(0);
  const auto frame = flat_->frame(0);
  if (frame) {
    const ImVec2 low{std::ceil(frame->low.x), std::ceil(frame->low.y)};
    const ImVec2 high{std::floor(frame->high.x), std::floor(frame->high.y)};
    points_->show(list, low, high, shown.cloud, shown.version, flat_camera(low),
                  point_style(context.look, shown.cloud));
  }
  list.ChannelsMerge();
  GeometryHit out;
  if (!frame) return out;
  list.PushClipRect(frame->low, frame->high, /*intersect_with_current_clip_rect=*/true);
  mark_selected(context, shown, list);
  if (const auto& hit = flat_->hit()) {
    out.mark = hit->mark;
    if (!out.mark) out.point = point_under_mouse(context, shown, list);
    out.clicked = hit->clicked;
  }
  list.PopClipRect();
  return out;
}

/// From the figure's own places on screen, which are linear.
Camera GeometryPicture::flat_camera(ImVec2 low) const {
  const auto from = flat_->place(0, 0.0, 0.0);
  const auto right = flat_->place(0, 1.0, 0.0);
  const auto up = flat_->place(0, 0.0, 1.0);
  Camera camera;
  if (!from || !right || !up) return camera;
  const auto difference = [](float a, float b) {
    return static_cast<double>(a) - static_cast<double>(b);
  };
  camera.offset = {difference(from->x, low.x), difference(from->y, low.y), 0.0};
  camera.right[0] = difference(right->x, from->x);
  camera.down[1] = difference(up->y, from->y);
  return camera;
}

GeometryHit GeometryPicture::show_orbit(PanelContext& context, const GeometryShown& shown) {
  const ImVec2 corner = ImGui::GetCursorScreenPos();
  const ImVec2 whole = ImGui::GetContentRegionAvail();
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const float room = context.look.px(4);
  const KeyPlace keys{list,
                      context.fonts,
                      context.look,
                      {corner.x + room, corner.y + room},
                      {corner.x + whole.x - room, corner.y + whole.y - room}};
  // The points keep clear of their names and of the bar, where there is room for both.
  const float top = std::ceil(std::min(0.2f * whole.y, room + entries_height(keys)));
  const float bar = shown.scene.colour ? bar_width(keys) + 2 * room : 0.0f;
  const ImVec2 low{corner.x, corner.y + top};
  const ImVec2 size{std::max(1.0f, std::floor(whole.x - std::min(0.3f * whole.x, bar))),
                    std::max(1.0f, std::floor(whole.y - top))};
  const ImVec2 high{low.x + size.x, low.y + size.y};
  ImGui::SetCursorScreenPos(low);
  ImGui::InvisibleButton("orbit", size);
  const bool over = ImGui::IsItemHovered();
  GeometryHit out;
  out.clicked = turn(size, low, over);
  list.PushClipRect(low, high, /*intersect_with_current_clip_rect=*/true);
  points_->show(
      list, low, high, shown.cloud, shown.version,
      orbit_.camera(shown.scene.box, static_cast<double>(size.x), static_cast<double>(size.y)),
      point_style(context.look, shown.cloud));
  draw_means(context, shown, list);
  mark_selected(context, shown, list);
  if (over && !dragged_) out.point = point_under_mouse(context, shown, list);
  list.PopClipRect();
  draw_keys(shown, keys);
  return out;
}

/// Mouse on the orbit; true if it was clicked.
bool GeometryPicture::turn(ImVec2 size, ImVec2 low, bool over) {
  const ImGuiIO& io = ImGui::GetIO();
  const auto side = static_cast<double>(std::min(size.x, size.y));
  if (over) ImGui::SetItemUsingMouseWheel();
  if (over && io.MouseWheel != 0.0f) {
    const double x = static_cast<double>(io.MousePos.x - low.x - 0.5f * size.x) / side;
    const double y = -static_cast<double>(io.MousePos.y - low.y - 0.5f * size.y) / side;
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
  const bool clicked = ImGui::IsItemDeactivated() && !dragged_ && over;
  if (ImGui::IsItemDeactivated()) dragged_ = false;
  return clicked;
}

void GeometryPicture::draw_means(const PanelContext& context, const GeometryShown& shown,
                                 ImDrawList& list) const {
  const Look& look = context.look;
  const plot::Theme theme = plot::make_theme(plot::Venue::icml, look.ground);
  for (const plot::Mark& mark : shown.frame.panels[0].marks) {
    const auto& scatter = std::get<plot::Scatter>(mark);
    if (scatter.x.empty()) continue;  // a set of points; means have places
    const plot::SeriesStyle style = theme.style_of(scatter.tone);
    const bool is_query = scatter.tone.role == plot::Role::highlight;
    const ImVec2 at = points_->place(is_query ? shown.scene.mean_query : shown.scene.mean_key);
    list.AddCircleFilled(at, look.px(6.5f), packed(plot::with_alpha(look.surface, 0.8)));
    MarkerStamp(style.marker, static_cast<double>(look.px(5))).draw(list, at, packed(style.colour));
  }
}

void GeometryPicture::draw_keys(const GeometryShown& shown, const KeyPlace& place) const {
  const plot::Theme theme = plot::make_theme(plot::Venue::icml, place.look.ground);
  std::vector<KeyEntry> entries;
  for (const plot::Mark& mark : shown.frame.panels[0].marks) {
    const auto& scatter = std::get<plot::Scatter>(mark);
    const plot::SeriesStyle style = theme.style_of(scatter.tone);
    const bool is_set = scatter.x.empty();
    entries.push_back(
        {scatter.label, style.colour, is_set ? plot::MarkerShape::circle : style.marker});
  }
  draw_entries(place, entries);
  if (shown.scene.colour) draw_colour_bar(place, *shown.scene.colour);
  draw_small_axes(place, orbit_, shown.scene.axis_labels);
}

void GeometryPicture::mark_selected(PanelContext& context, const GeometryShown& shown,
                                    ImDrawList& list) const {
  if (shown.key) draw_selected(context, list, points_->place(*shown.key), "key");
  if (shown.query) draw_selected(context, list, points_->place(*shown.query), "query");
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
