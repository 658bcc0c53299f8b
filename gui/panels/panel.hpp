// A panel: one view of the session. This header is the contract of all of them.
//
// One file per panel: gui/panels/NAME_panel.cpp defines `std::unique_ptr<Panel> make_NAME_panel()`;
// CMake writes the table that calls these functions, so nothing else names a panel.
//
// In every frame in which it is shown:
//   1. controls(context)   the panel's own switches, beside its title or in lines below it
//   2. draw(context)       everything else, into the current ImGui child window, which it may fill
// Panels share nothing but the session. What takes longer than a millisecond is asked for through
// an AsyncValue (gui/model/jobs/async_value.hpp), with the last value shown meanwhile. They never
// block, print, or throw: what fails becomes a sentence with the next step (widgets.hpp).
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/plot/figure.hpp"
#include "gui/model/runs/run_queue.hpp"
#include "gui/model/session/session.hpp"
#include "gui/render/look.hpp"

namespace kvscope::gui {

class FontAtlas;
class TextureStore;

/// Zoom per step of the wheel, in maps and clouds.
inline constexpr double kWheelStep = 1.2;

/// What panels may ask of the window around them.
struct Requests {
  std::string show_panel;                   // bring this panel into view
  std::vector<std::filesystem::path> open;  // files to be opened as if they had been dropped
  std::string flash;                        // words for the status bar, for a moment
  std::string press;                        // runs the key of these words in the App's table
  bool export_page = false;                 // bookmarks and results as an HTML page
  bool redraw = false;                      // another frame soon: something moves
  std::chrono::steady_clock::time_point look_again =  // another frame then, within a second
      std::chrono::steady_clock::time_point::max();
};

/// What the tooltip of the last frame said: "name", "value" lines.
using HoverLines = std::vector<std::pair<std::string, std::string>>;

/// Named places, in pixels of the window.
struct Places : std::vector<std::pair<std::string, ImVec2>> {
  using vector::vector;
  void add(std::string name, const std::optional<ImVec2>& at) {
    if (at) emplace_back(std::move(name), *at);
  }
};

struct PanelContext {
  Session& session;
  const Look& look;
  FontAtlas& fonts;
  TextureStore& textures;
  Requests& requests;
  RunQueue& runs;
};

/// How a panel is named and found.
struct PanelInfo {
  std::string name;      // "attention-map": sessions, --panel
  std::string title;     // "Attention map"
  std::string sentence;  // what one sees and what clicking does
  Extent extent = Extent::head;
};

/// One position of a panel's switches, for lists of what can be done.
struct PanelChoice {
  std::string words;    // "pooling: mean"
  std::string help;     // of the switch
  std::string options;  // {"pooling": "mean"}: JSON that set_options takes
};

class Panel {
 public:
  virtual ~Panel() = default;
  virtual PanelInfo info() const = 0;
  virtual void controls(PanelContext& context) { (void)context; }
  virtual void draw(PanelContext& context) = 0;

  /// What is shown, zoom and choices included, as the command line's figures are; empty if there is
  /// nothing to see yet. Its caption says which trace, layer, head, method and budget it shows.
  virtual std::optional<plot::Figure> figure() const { return std::nullopt; }
  /// The numbers behind what is shown; by default those of figure().
  virtual std::optional<std::string> csv() const;

  /// The panel's own switches, for sessions. set_options ignores what it does not know and throws
  /// ConfigError for values of the wrong type.
  virtual nlohmann::ordered_json options() const;
  virtual void set_options(const nlohmann::ordered_json& options) { (void)options; }

  /// Every position of its switches, one by one.
  virtual std::vector<PanelChoice> choices() const { return {}; }

  /// Places inside the panel that a program may want to click, in pixels of the window, by name:
  /// those of the last frame.
  virtual Places landmarks() const { return {}; }

  /// Where the point (x, y) of a panel of figure() was drawn in the last frame, in pixels of the
  /// window; empty if nothing is drawn or the panel gives no such answer. Tests click there.
  virtual std::optional<ImVec2> place(std::size_t figure_panel, double x, double y) const {
    (void)figure_panel, (void)x, (void)y;
    return std::nullopt;
  }

  /// The next frame puts the keyboard into its search field, if it has one.
  virtual void begin_search() {}

  /// A right click means something here; elsewhere it opens the panel's menu.
  virtual bool takes_right_click() const { return false; }

  /// Something is still computed or in motion: screenshots wait for it.
  virtual bool is_busy() const { return false; }
  /// What the picture and its numbers lack, or why they are not those of what is selected: they are
  /// not taken out of the window so. Empty: nothing.
  virtual std::string unfinished() const { return is_busy() ? "it is still being computed" : ""; }
};

/// One of each, in alphabetical order of their names.
std::vector<std::unique_ptr<Panel>> make_panels();

}  // namespace kvscope::gui
