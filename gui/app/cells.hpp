// The arranged panels: a header for each with its switches and menu, bars to drag between them, one
// of them maximised at times.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gui/model/session/arrangement.hpp"
#include "gui/panels/panel.hpp"
#include "gui/panels/switch_row.hpp"

namespace kvscope::gui {

class Cells {
 public:
  using Panels = std::vector<std::unique_ptr<Panel>>;

  /// Draws all panels of the arrangement into the area; headers may exchange panels, bars change
  /// shares.
  void draw(PanelContext& context, const Panels& panels, Place& root, const Area& area);

  /// The panel that was clicked last, or is under the mouse; empty if none was yet.
  const std::string& focused() const { return focused_; }
  void focus(const std::string& panel) { focused_ = panel; }
  /// Only this panel is drawn; empty: all.
  const std::string& maximised() const { return maximised_; }
  void maximise(const std::string& panel) { maximised_ = panel; }

  /// The focused panel gets the keyboard in the next frame: arrows go through its controls.
  void take_keyboard() { takes_keyboard_ = true; }
  /// Opens the focused panel's menu, as a right click does.
  void open_menu() { opens_menu_ = true; }
  /// Help unfolded above a panel's picture.
  bool shows_help(const std::string& panel) const { return helped_.contains(panel); }
  void show_help(const std::string& panel, bool on);

  /// True if a bar was moved or a panel exchanged in the last frame.
  bool has_changed() const { return changed_; }
  std::optional<Area> area_of(const std::string& panel) const;

 private:
  void draw_cell(PanelContext& context, const Panels& panels, Place& leaf, const Area& area);
  void draw_header(PanelContext& context, const Panels& panels, Place& leaf, Panel& panel);
  /// The menu behind a title: all panels.
  void draw_panel_menu(const Panels& panels, Place& leaf);
  /// What can be taken away: of `focused()`, as by keys.
  void draw_menu(Requests& requests, const std::string& panel, bool has_help, bool is_alone);
  void draw_splitter(PanelContext& context, Splitter& splitter);

  std::string focused_;
  std::string maximised_;
  Place alone_;  // the maximised panel's cell: its address names it in all frames
  bool changed_ = false;
  bool takes_keyboard_ = false;
  bool opens_menu_ = false;
  std::set<std::string> helped_;
  std::map<std::string, Area> areas_;  // of the last frame
  std::map<std::string, SwitchRow> switches_;
};

}  // namespace kvscope::gui
