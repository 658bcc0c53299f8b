// What the mouse and the keys do to the viewport of an attention map, and the small map in its
// corner.
#include <GLFW/glfw3.h>

#include <algorithm>
#include <cmath>

#include "gui/panels/attention_map_view.hpp"

namespace kvscope::gui {

namespace {

constexpr float kCorner = 120.0f;  // points a side
constexpr float kDragThreshold = 4.0f;
constexpr double kKeyPan = 0.1;  // of the view per key press
constexpr double kKeyZoom = 1.5;
constexpr double kAlmostAll = 0.95;

MapRect rect_between(const MapView& view, ImVec2 origin, ImVec2 a, ImVec2 b) {
  const MapPoint p = view.at(static_cast<double>(std::min(a.x, b.x) - origin.x),
                             static_cast<double>(std::min(a.y, b.y) - origin.y));
  const MapPoint q = view.at(static_cast<double>(std::max(a.x, b.x) - origin.x),
                             static_cast<double>(std::max(a.y, b.y) - origin.y));
  return {p, q};
}

}  // namespace

void AttentionMapView::read_mouse(const PanelContext& context, MapView& view, MapGesture& gesture) {
  const ImGuiIO& io = ImGui::GetIO();
  const bool hovered = ImGui::IsItemHovered();
  const auto x = static_cast<double>(io.MousePos.x - low_.x);
  const auto y = static_cast<double>(io.MousePos.y - low_.y);
  if (hovered && io.MouseWheel != 0.0f) {
    view.zoom(std::pow(kWheelStep, static_cast<double>(io.MouseWheel)), x, y);
    has_zoomed_ = true;
    gesture.moved = true;
  }
  if (ImGui::IsItemActivated()) {
    dragged_ = false;
    if (io.KeyShift) band_from_ = io.MousePos;
  }
  if (ImGui::IsItemActive()) {
    const float far = context.look.px(kDragThreshold);
    if (!dragged_ && ImGui::IsMouseDragging(ImGuiMouseButton_Left, far)) {
      dragged_ = true;
      if (!band_from_) {
        const ImVec2 moved = ImGui::GetMouseDragDelta(ImGuiMouseButton_Left, far);
        view.pan(static_cast<double>(moved.x), static_cast<double>(moved.y));
        gesture.moved = true;
      }
    } else if (dragged_ && !band_from_ && (io.MouseDelta.x != 0.0f || io.MouseDelta.y != 0.0f)) {
      view.pan(static_cast<double>(io.MouseDelta.x), static_cast<double>(io.MouseDelta.y));
      gesture.moved = true;
    }
    if (dragged_ && !band_from_) ImGui::SetMouseCursor(ImGuiMouseCursor_ResizeAll);
  }
  if (hovered) gesture.hovered = view.hit(x, y);
  if (ImGui::IsItemDeactivated()) {
    if (band_from_ && dragged_) {
      view.fit(rect_between(view, low_, *band_from_, io.MousePos));
      gesture.moved = true;
    } else if (!dragged_ && hovered) {
      gesture.clicked = gesture.hovered;
    }
    band_from_.reset();
    dragged_ = false;
  }
  if (hovered && ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left)) {
    view.fit();
    gesture.moved = true;
  }
}

void AttentionMapView::read_keys(MapView& view, const MapScene& scene, MapGesture& gesture) const {
  const ImGuiIO& io = ImGui::GetIO();
  if (io.WantTextInput || io.KeyCtrl || io.KeyAlt) return;
  const auto pressed = [](int key) { return ImGui::IsKeyPressed(key, /*repeat=*/true); };
  const int right = (pressed(GLFW_KEY_RIGHT) ? 1 : 0) - (pressed(GLFW_KEY_LEFT) ? 1 : 0);
  const int down = (pressed(GLFW_KEY_DOWN) ? 1 : 0) - (pressed(GLFW_KEY_UP) ? 1 : 0);
  if (io.KeyShift) {
    gesture.step_key = right;
    gesture.step_query = down;
  } else if (right != 0 || down != 0) {
    view.pan(-kKeyPan * right * view.width(), -kKeyPan * down * view.height());
    gesture.moved = true;
  }
  const auto x = static_cast<double>(io.MousePos.x - low_.x);
  const auto y = static_cast<double>(io.MousePos.y - low_.y);
  const MapPoint before = view.origin();
  const double scale = view.tokens_per_pixel();
  if (pressed(GLFW_KEY_EQUAL) || pressed(GLFW_KEY_KP_ADD)) view.zoom(kKeyZoom, x, y);
  if (io.KeyShift) {  // "+" needs Shift on many keyboards, the rest does not
    gesture.moved = gesture.moved || view.tokens_per_pixel() != scale;
    return;
  }
  if (pressed(GLFW_KEY_MINUS) || pressed(GLFW_KEY_KP_SUBTRACT)) view.zoom(1.0 / kKeyZoom, x, y);
  if (pressed(GLFW_KEY_0) || pressed(GLFW_KEY_KP_0)) view.fit();
  if (pressed(GLFW_KEY_W)) view.fit_width();
  if (pressed(GLFW_KEY_V)) view.fit_queries(scene.grid.rows);
  if (pressed(GLFW_KEY_G)) gesture.to_selection = true;
  const MapPoint after = view.origin();
  gesture.moved = gesture.moved || after.key != before.key || after.query != before.query ||
                  view.tokens_per_pixel() != scale;
}

// ---- the corner ----

std::optional<AttentionMapView::Corner> AttentionMapView::corner(const PanelContext& context,
                                                                 const MapView& view,
                                                                 const MapScene& scene) const {
  if (scene.whole == nullptr) return std::nullopt;
  const auto n = static_cast<double>(scene.grid.n_tokens);
  const bool all_in_sight = static_cast<double>(view.keys().size()) >= kAlmostAll * n &&
                            static_cast<double>(view.queries().size()) >= kAlmostAll * n;
  const float side = context.look.px(kCorner);
  const bool fits = high_.x - low_.x > 2.5f * side && high_.y - low_.y > 2.0f * side;
  if (all_in_sight || !fits) return std::nullopt;
  const float inset = context.look.px(8);
  return Corner{{std::round(high_.x - side - inset), std::round(low_.y + inset)}, std::round(side)};
}

void AttentionMapView::read_corner(const Corner& corner, MapView& view, const MapScene& scene,
                                   MapGesture& gesture) {
  ImGui::SetCursorScreenPos(corner.low);
  ImGui::InvisibleButton("corner", {corner.side, corner.side});
  if (!ImGui::IsItemActive()) return;
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  const double n = static_cast<double>(scene.grid.n_tokens);
  const auto side = static_cast<double>(corner.side);
  view.centre_on({static_cast<double>(mouse.y - corner.low.y) / side * n,
                  static_cast<double>(mouse.x - corner.low.x) / side * n});
  gesture.moved = true;
}

void AttentionMapView::draw_corner(const PanelContext& context, const MapView& view,
                                   const MapScene& scene) const {
  const auto place = corner(context, view, scene);
  if (!place) return;
  const Look& look = context.look;
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const ImVec2 low = place->low;
  const ImVec2 high{low.x + place->side, low.y + place->side};
  const plot::Theme theme = plot::make_theme(plot::Venue::slide, look.ground);
  list.AddRectFilled(low, high, packed(theme.masked));
  const double n = static_cast<double>(scene.grid.n_tokens);
  const double per_token = static_cast<double>(place->side) / n;
  list.PushClipRect(low, high, true);
  if (const Texture* texture = scene.textures.find(scene.whole->id)) {
    const double cells = static_cast<double>(scene.whole->n_cols << scene.whole->id.level);
    const auto reach = static_cast<float>(cells * per_token);
    list.AddImage(texture->id(), low, {low.x + reach, low.y + reach});
  }
  const MapRect shown = view.shown();
  const auto x = [&](double key) {
    return low.x + static_cast<float>(std::clamp(key, 0.0, n) * per_token);
  };
  const auto y = [&](double query) {
    return low.y + static_cast<float>(std::clamp(query, 0.0, n) * per_token);
  };
  ImVec2 a{x(shown.from.key), y(shown.from.query)};
  ImVec2 b{x(shown.to.key), y(shown.to.query)};
  const float least = look.px(6);  // a dot would not be found
  b = {std::max(b.x, a.x + least), std::max(b.y, a.y + least)};
  list.AddRect({a.x - 1, a.y - 1}, {b.x + 1, b.y + 1}, packed(look.surface), 0.0f, 0, look.px(3));
  list.AddRect(a, b, packed(look.accent), 0.0f, 0, look.px(1.5f));
  list.PopClipRect();
  list.AddRect({low.x - 1, low.y - 1}, {high.x + 1, high.y + 1}, packed(look.muted));
}

}  // namespace kvscope::gui
