#include "gui/app/shortcuts.hpp"

#include <GLFW/glfw3.h>
#include <fmt/format.h>
#include <imgui.h>

namespace kvscope::gui {

namespace {

std::string name_of_key(int key) {
  if (key >= GLFW_KEY_F1 && key <= GLFW_KEY_F12) return fmt::format("F{}", key - GLFW_KEY_F1 + 1);
  switch (key) {
    case GLFW_KEY_ESCAPE:
      return "Esc";
    case GLFW_KEY_PAGE_UP:
      return "PageUp";
    case GLFW_KEY_PAGE_DOWN:
      return "PageDown";
    case GLFW_KEY_TAB:
      return "Tab";
    case GLFW_KEY_EQUAL:
      return "+";
    case GLFW_KEY_MINUS:
      return "-";
    default:
      return std::string(1, static_cast<char>(key));
  }
}

}  // namespace

std::string keys_of(const Shortcut& shortcut) {
  return fmt::format("{}{}{}", shortcut.ctrl ? "Ctrl+" : "", shortcut.shift ? "Shift+" : "",
                     name_of_key(shortcut.key));
}

void run_shortcuts(const std::vector<Shortcut>& shortcuts, bool dialog_is_open) {
  const ImGuiIO& io = ImGui::GetIO();
  if (io.KeyAlt) return;
  for (const Shortcut& s : shortcuts) {
    if ((io.WantTextInput || dialog_is_open) && !s.in_text) continue;
    // On many keyboards "+" needs Shift: it counts either way.
    const bool shift_fits = s.key == GLFW_KEY_EQUAL || s.shift == io.KeyShift;
    if (s.ctrl != io.KeyCtrl || !shift_fits) continue;
    const bool repeats = s.group == "Selection";
    if (ImGui::IsKeyPressed(s.key, repeats)) {
      s.run();
      return;
    }
  }
}

}  // namespace kvscope::gui
