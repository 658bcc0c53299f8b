// The switches of a panel's header: one beside the other, and in further lines where the panel is
// too narrow for one. ImGui learns how wide an item is by drawing it, so the widths are those of
// the frame before.
#pragma once

#include <vector>

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
  void close();

  struct Item {
    float gap = 0.0f;  // before it
    float width = 0.0f;
    bool operator==(const Item&) const = default;
  };
  std::vector<Item> items_;  // of the last frame
  std::vector<Item> drawn_;  // in this one
  float left_ = 0.0f;        // of the last of drawn_
  float top_ = 0.0f;
  float right_ = 0.0f;
};

/// Between two switches in Panel::controls(): the next one stands `gap` pixels (the usual distance)
/// beside this one, or below if it does not fit.
void next_switch(float gap = -1.0f);

}  // namespace kvscope::gui
