// The geometry panel's picture: a figure of queries and keys, flat or from any side, and what the
// mouse does to it.
#pragma once

#include <imgui.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "gui/model/geometry/geometry_scene.hpp"
#include "gui/panels/panel.hpp"
#include "gui/render/figure_view.hpp"

namespace kvscope::gui {

/// What is shown; `version` names it.
struct GeometryShown {
  const GeometryScene& scene;
  std::uint64_t version = 0;
  bool is_3d = false;
  std::optional<CloudPoint> query;  // the selected ones
  std::optional<CloudPoint> key;
  std::vector<CloudPoint> pointed;  // at, in another panel
  std::vector<CloudPoint> brushed;
};

/// What the mouse does.
struct GeometryHit {
  const SceneSet* set = nullptr;  // under the mouse, and there:
  std::size_t slot = 0;           // SceneSet::slot
  std::optional<bool> mean;       // that of the queries, or of the keys
  bool clicked = false;
  /// A lasso was closed around these: queries or keys, by SceneSet::slot.
  std::optional<std::vector<std::pair<bool, std::size_t>>> lasso;
};

class GeometryPicture {
 public:
  /// Fills what is left of the current ImGui window. Flat: the wheel zooms, dragging moves. From
  /// any side: dragging turns, with Shift it moves, the wheel zooms about the cursor. A double
  /// click resets both.
  GeometryHit show(PanelContext& context, const GeometryShown& shown);

  /// The flat view's ranges; empty where nothing is zoomed.
  std::optional<std::pair<plot::Range, plot::Range>> zoom() const;
  const Orbit& orbit() const { return orbit_; }
  void set_orbit(const Orbit& orbit) { orbit_ = orbit; }
  void reset();

  /// In motion: another frame shows more.
  bool is_rough() const { return of_.stride > 1 || view_.is_rough(); }
  /// Where a point was shown last, on screen.
  std::optional<ImVec2> place(const CloudPoint& point) const;

 private:
  /// What the figure was made of.
  struct MadeOf {
    std::uint64_t version = 0;
    bool is_3d = false;
    bool is_little = false;
    std::size_t stride = 1;
    Orbit orbit;
    bool operator==(const MadeOf&) const = default;
  };
  void show_figure(PanelContext& context, const GeometryShown& shown);
  bool turn(ImVec2 low, ImVec2 high);
  void draw_turned_axes(const PanelContext& context, ImVec2 low, ImVec2 high,
                        ImDrawList& list) const;

  Orbit orbit_;
  FigureView view_;
  MadeOf of_;
  std::optional<Camera> camera_;  // of the figure's axes; empty: flat
  plot::Figure figure_;
  double turned_at_ = -1.0;  // seconds
  bool dragged_ = false;
};

}  // namespace kvscope::gui
