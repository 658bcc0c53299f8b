#include "gui/platform/key_queue.hpp"

#include <GLFW/glfw3.h>

#include <set>
#include <type_traits>

namespace kvscope::gui {

namespace {

/// Until the field of a dialog that Ctrl and a key have opened takes letters.
constexpr int kFramesOfField = 3;
constexpr int kKeys = static_cast<int>(std::extent_v<decltype(ImGuiIO::KeysDown)>);

bool is_modifier(unsigned key) {
  return key >= GLFW_KEY_LEFT_SHIFT && key <= GLFW_KEY_RIGHT_SUPER;
}

bool is_shift(unsigned key) {
  return key == GLFW_KEY_LEFT_SHIFT || key == GLFW_KEY_RIGHT_SHIFT;
}

/// Enter, Backspace, arrows: no letter comes with them.
bool is_command(unsigned key) {
  return key >= GLFW_KEY_ESCAPE && !is_modifier(key);
}

}  // namespace

void KeyQueue::key(int key, bool is_down) {
  if (key < 0 || key >= kKeys) return;
  events_.push_back({is_down ? Kind::down : Kind::up, static_cast<unsigned>(key)});
}

void KeyQueue::letter(unsigned codepoint) {
  events_.push_back({Kind::letter, codepoint});
}

bool KeyQueue::feed(ImGuiIO& io) {
  std::set<unsigned> changed;
  n_held_ -= n_held_ > 0;
  bool has_press = false;
  bool has_command = false;
  for (; !events_.empty(); events_.pop_front()) {
    const Event& event = events_.front();
    if (event.kind == Kind::letter) {
      if (has_command || n_held_ > 0) break;
      io.AddInputCharacter(event.code);
      continue;
    }
    const bool is_press = event.kind == Kind::down && !is_modifier(event.code);
    if (is_press && has_press && !io.WantTextInput) break;
    // Of typed letters the letters count, not how long their keys were down.
    const bool is_typing = io.WantTextInput && !has_command &&
                           !io.KeysDown[GLFW_KEY_LEFT_CONTROL] &&
                           !io.KeysDown[GLFW_KEY_RIGHT_CONTROL];
    const bool is_typed = is_typing && (event.code < GLFW_KEY_ESCAPE || is_shift(event.code));
    // A chord is over for the program when it was seen: its modifier may be let go of first.
    if (event.kind == Kind::up && is_modifier(event.code) && has_press && !is_typed) break;
    if (!changed.insert(event.code).second && !is_typed) break;
    io.KeysDown[event.code] = event.kind == Kind::down;
    has_press = has_press || is_press;
    has_command = has_command || (is_press && is_command(event.code));
    const bool is_chord =
        is_press && (io.KeysDown[GLFW_KEY_LEFT_CONTROL] || io.KeysDown[GLFW_KEY_RIGHT_CONTROL]);
    if (is_chord) n_held_ = kFramesOfField;
  }
  const auto either = [&](int left, int right) { return io.KeysDown[left] || io.KeysDown[right]; };
  io.KeyCtrl = either(GLFW_KEY_LEFT_CONTROL, GLFW_KEY_RIGHT_CONTROL);
  io.KeyShift = either(GLFW_KEY_LEFT_SHIFT, GLFW_KEY_RIGHT_SHIFT);
  io.KeyAlt = either(GLFW_KEY_LEFT_ALT, GLFW_KEY_RIGHT_ALT);
  io.KeySuper = either(GLFW_KEY_LEFT_SUPER, GLFW_KEY_RIGHT_SUPER);
  return !events_.empty();
}

}  // namespace kvscope::gui
