// Keys and letters that arrive between two frames, in their order: a tap that is shorter than a
// frame counts, and so does each of two quick ones.
#pragma once

#include <imgui.h>

#include <deque>

namespace kvscope::gui {

/// Keys are GLFW's codes, as in ImGuiIO::KeysDown.
class KeyQueue {
 public:
  void key(int key, bool is_down);
  void letter(unsigned codepoint);
  /// The keyboard went to another window.
  void clear() { events_.clear(); }

  /// Before ImGui::NewFrame: hands over what one frame can tell apart. Ends before a second change
  /// of one key (unless it types letters), before letters that follow a key like Enter, and, where
  /// no text is typed, before a second press; letters behind Ctrl and a key wait some frames, for
  /// the field that it opens. True if something is left: a frame is wanted soon.
  bool feed(ImGuiIO& io);

 private:
  enum class Kind { down, up, letter };
  struct Event {
    Kind kind;
    unsigned code;  // key or letter
  };
  std::deque<Event> events_;
  int n_held_ = 0;  // frames that letters still wait
};

}  // namespace kvscope::gui
