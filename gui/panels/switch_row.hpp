// The switches of a panel's header: one beside the other, and in further lines where the panel is
// too narrow for one. ImGui learns how wide an item is by drawing it, so the widths are those of
// the frame before.
//
// A switch shows one option of the panel, by its name and with its help as a tooltip: `value` is
// that member of `all`. It stands beside the switches before it, in a popup below them.
#pragma once

#include <imgui.h>

#include <string>
#include <vector>

#include "core/base/fields.hpp"
#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

class SwitchRow {
 public:
  /// From here on, next_switch() keeps to the left of `right` (pixels of the window).
  void begin(float right);
  /// True if a switch has another width than before: another frame puts all into their places.
  bool end();
  /// Of all in one line.
  float width() const;

 private:
  friend void next_switch(float gap);
  friend void switch_label(const char* words);
  void close();

  struct Item {
    float gap = 0.0f;  // before it
    float width = 0.0f;
    bool operator==(const Item&) const = default;
  };
  std::vector<Item> items_;  // of the last frame
  std::vector<Item> drawn_;  // in this one
  float left_ = 0.0f;        // of the last of drawn_
  ImVec2 start_{};           // where it begins, behind its label
  float top_ = 0.0f;
  float right_ = 0.0f;
  const void* window_ = nullptr;
};

/// Between two switches in Panel::controls(): the next one stands `gap` pixels (the usual distance)
/// beside this one, or below if it does not fit. Nothing before the first one, and in popups.
void next_switch(float gap = -1.0f);
/// A word before the next switch, which belongs to it.
void switch_label(const char* words);

/// All values of an enum as buttons. True if another one was chosen.
template <class Options, class E>
bool switch_buttons(const Options& all, E& value) {
  const Field& field = field_at<Options>(all, value);
  next_switch();
  const bool changed = segmented(std::string(field.name).c_str(), value);
  help_tooltip(field.help);
  return changed;
}
/// The same as a drop-down; `words`: for its values, without any their names.
template <class Options, class E>
bool switch_list(const Options& all, E& value, float width,
                 const std::vector<std::string>& words = {}) {
  const Field& field = field_at<Options>(all, value);
  const std::string id = "##" + std::string(field.name);
  next_switch();
  const bool changed =
      words.empty() ? choose(id.c_str(), value, width) : choose(id.c_str(), value, words, width);
  help_tooltip(field.help);
  return changed;
}
/// A flag. True if it was changed.
template <class Options>
bool switch_box(const Options& all, bool& value, const char* words) {
  next_switch();
  const bool changed = check_box(words, &value);
  help_tooltip(field_at<Options>(all, value).help);
  return changed;
}

}  // namespace kvscope::gui
