// Everything that a key does, in one table: the program reads it, and the help overlay shows it.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace kvscope::gui {

struct Shortcut {
  std::string group;  // "Selection"
  int key = 0;        // as GLFW numbers keys
  bool ctrl = false;
  bool shift = false;
  std::string words;  // "next layer"
  std::function<void()> run;
  bool in_text = false;  // also while a text field has the keyboard
};

/// "Ctrl+Shift+L".
std::string keys_of(const Shortcut& shortcut);

/// Runs what was pressed in this frame. A text field that has the keyboard, and an open dialog,
/// leave only those that hold `in_text`.
void run_shortcuts(const std::vector<Shortcut>& shortcuts, bool dialog_is_open);

}  // namespace kvscope::gui
