#include "gui/panels/pointed.hpp"

#include <imgui.h>
#include <imgui_internal.h>

#include <utility>

namespace kvscope::gui {

namespace {
Pointed this_frame;
Pointed last_frame;

/// One of them leaves it open, or they are the same.
template <class T>
bool fit(const std::optional<T>& a, const std::optional<T>& b) {
  return !a || !b || a == b;
}
}  // namespace

Pointed Pointed::at(const RowTarget& target) {
  Pointed thing = target.key ? at_key(*target.key) : Pointed{};
  thing.query = target.query;
  thing.layer = target.layer;
  thing.q_head = target.q_head;
  thing.method = target.selector.value_or("");
  if (target.budget) thing.budget = static_cast<double>(*target.budget);
  if (target.nucleus) thing.budget = *target.nucleus;
  return thing;
}

bool Pointed::meets(const Pointed& other) const {
  return (query && query == other.query) ||
         (other.keys.size() > 0 && has_key(other.keys.begin, other.keys.size())) ||
         (is_of_heads() && other.is_of_heads() && fit(layer, other.layer) &&
          fit(q_head, other.q_head)) ||
         (!method.empty() && method == other.method && fit(budget, other.budget));
}

void point_at(const Pointed& thing) {
  this_frame = thing;
}

const Pointed& pointed() {
  return last_frame;
}

bool turn_pointed() {
  const Pointed before = std::exchange(last_frame, std::exchange(this_frame, {}));
  return last_frame != before;
}

void pointing_line(const Pointed& about) {
  if (ImGui::IsItemHovered()) return point_at(about);
  if (!pointed().meets(about)) return;
  const ImU32 colour = ImGui::GetColorU32(ImGuiCol_Text, 0.16f);  // ink: no selection's colour
  if (ImGui::GetCurrentContext()->CurrentTable != nullptr) {
    ImGui::TableSetBgColor(ImGuiTableBgTarget_RowBg0, colour);
  } else {
    ImGui::GetWindowDrawList()->AddRectFilled(ImGui::GetItemRectMin(), ImGui::GetItemRectMax(),
                                              colour);
  }
}

}  // namespace kvscope::gui
