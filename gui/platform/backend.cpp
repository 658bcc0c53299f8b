#include "gui/platform/backend.hpp"

#include <GLFW/glfw3.h>
#include <imgui_internal.h>

#include <algorithm>
#include <iterator>

namespace kvscope::gui {

namespace {

/// GLFW's codes, in the order of ImGuiKey_: as in a window, also where GLFW is not started.
constexpr int kKeyMap[] = {GLFW_KEY_TAB,   GLFW_KEY_LEFT,    GLFW_KEY_RIGHT,     GLFW_KEY_UP,
                           GLFW_KEY_DOWN,  GLFW_KEY_PAGE_UP, GLFW_KEY_PAGE_DOWN, GLFW_KEY_HOME,
                           GLFW_KEY_END,   GLFW_KEY_INSERT,  GLFW_KEY_DELETE,    GLFW_KEY_BACKSPACE,
                           GLFW_KEY_SPACE, GLFW_KEY_ENTER,   GLFW_KEY_ESCAPE,    GLFW_KEY_KP_ENTER,
                           GLFW_KEY_A,     GLFW_KEY_C,       GLFW_KEY_V,         GLFW_KEY_X,
                           GLFW_KEY_Y,     GLFW_KEY_Z};
static_assert(std::size(kKeyMap) == ImGuiKey_COUNT);

}  // namespace

Backend::Backend() : fonts_(1.0) {
  IMGUI_CHECKVERSION();
  context_ = ImGui::CreateContext(&fonts_.imgui());
  ImGui::SetCurrentContext(context_);
  ImGuiIO& io = ImGui::GetIO();
  io.IniFilename = nullptr;  // settings are the application's
  io.LogFilename = nullptr;
  io.ConfigInputTextCursorBlink = false;  // nothing blinks, and an idle window need not wake up
  io.ConfigWindowsMoveFromTitleBarOnly = true;
  std::ranges::copy(kKeyMap, io.KeyMap);
}

Backend::~Backend() {
  destroy_context();
}

void Backend::destroy_context() {
  if (context_ == nullptr) return;
  ImGuiContext* const before = ImGui::GetCurrentContext();
  ImGui::DestroyContext(context_);
  if (before != context_) ImGui::SetCurrentContext(before);
  context_ = nullptr;
}

void Backend::begin_frame() {
  ImGui::SetCurrentContext(context_);
  if (fonts_.prepare()) upload_fonts();
  begin_platform_frame();
  press_with_enter();
  close_unseen_popups();
  ImGui::NewFrame();
  forget_left_text();
}

/// Dear ImGui keeps the way back of the last text field. Its way back through a text that the
/// program has changed since, a number that was clamped or a field that was cleared, ends before
/// the text begins: a length below zero, and a write before the buffer. So none is kept of a field
/// that was left.
void Backend::forget_left_text() {
  ImGuiContext& g = *context_;
  if (g.ActiveId != g.InputTextState.ID) g.InputTextState.ID = 0;
}

/// Esc closes the popup on top, and Dear ImGui looks at its window for that: one that was opened in
/// the last frame and has not been drawn yet has none.
void Backend::close_unseen_popups() {
  const ImGuiIO& io = ImGui::GetIO();
  const int escape = io.KeyMap[ImGuiKey_Escape];
  if (escape < 0 || !io.KeysDown[escape]) return;
  auto& popups = context_->OpenPopupStack;
  while (!popups.empty() && popups.back().Window == nullptr) popups.pop_back();
}

/// Enter presses what the arrows have marked, as Space does: buttons, lines of combos. Not one that
/// ends a text: what is opened by it must not be pressed at once.
void Backend::press_with_enter() {
  ImGuiIO& io = ImGui::GetIO();
  bool is_down = false;
  for (const ImGuiKey key : {ImGuiKey_Enter, ImGuiKey_KeyPadEnter}) {
    const int code = io.KeyMap[key];
    if (code < 0 || !io.KeysDown[code]) continue;
    is_down = true;
    if (io.KeysDownDuration[code] < 0.0f) enter_presses_ = !io.WantTextInput;
  }
  const bool is_nav = (io.ConfigFlags & ImGuiConfigFlags_NavEnableKeyboard) != 0;
  if (is_down && enter_presses_ && is_nav) io.NavInputs[ImGuiNavInput_Activate] = 1.0f;
}

void Backend::frame(const std::function<void()>& draw) {
  begin_frame();
  try {
    draw();
  } catch (...) {
    ImGui::ErrorCheckEndFrameRecover(nullptr);
    end_frame();
    throw;
  }
  end_frame();
}

void Backend::end_frame() {
  ImGui::Render();
  draw(ImGui::GetDrawData());
  texture_store().collect();
}

}  // namespace kvscope::gui
