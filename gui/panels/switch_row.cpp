#include "gui/panels/switch_row.hpp"

#include <imgui_internal.h>

namespace kvscope::gui {

namespace {
SwitchRow* current = nullptr;  // one header is drawn at a time
}  // namespace

void SwitchRow::begin(float right) {
  current = this;
  right_ = right;
  drawn_.assign(1, {});
  const ImVec2 at = ImGui::GetCursorScreenPos();
  start_ = at;
  left_ = at.x;
  top_ = at.y;
  window_ = ImGui::GetCurrentWindow();
}

/// What has been drawn since the last switch is as wide as it is.
void SwitchRow::close() {
  ImGui::SameLine(0.0f, 0.0f);
  drawn_.back().width = ImGui::GetCursorScreenPos().x - left_;
}

bool SwitchRow::end() {
  current = nullptr;
  const bool has_any = ImGui::GetCursorScreenPos().y != top_;
  if (has_any) {
    close();
    ImGui::NewLine();
  }
  const bool changed = drawn_ != items_;
  items_ = drawn_;
  return changed;
}

float SwitchRow::width() const {
  float sum = 0.0f;
  for (const Item& item : items_) sum += item.gap + item.width;
  return sum;
}

void next_switch(float gap) {
  if (current == nullptr || ImGui::GetCurrentWindow() != current->window_) return;
  SwitchRow& row = *current;
  const ImVec2 now = ImGui::GetCursorScreenPos();
  if (now.x == row.start_.x && now.y == row.start_.y) return;  // nothing stands there yet
  row.close();
  const float distance = gap < 0.0f ? ImGui::GetStyle().ItemSpacing.x : gap;
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const std::size_t i = row.drawn_.size();
  const float width = i < row.items_.size() ? row.items_[i].width : 0.0f;
  if (at.x + distance + width > row.right_) {
    ImGui::NewLine();
  } else {
    ImGui::SetCursorScreenPos({at.x + distance, at.y});
  }
  row.drawn_.push_back({distance, 0.0f});
  row.start_ = ImGui::GetCursorScreenPos();
  row.left_ = row.start_.x;
}

void switch_label(const char* words) {
  next_switch();
  ImGui::AlignTextToFramePadding();
  ImGui::TextDisabled("%s", words);
  ImGui::SameLine();
  if (current != nullptr) current->start_ = ImGui::GetCursorScreenPos();
}

}  // namespace kvscope::gui
