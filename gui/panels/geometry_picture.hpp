// The geometry panel's picture: axes, legend and colour bar are a figure's; the points lie below
// its marks, as a texture, flat or from any side.
#pragma once

#include <imgui.h>

#include <cstdint>
#include <optional>

#include "gui/model/geometry/geometry_scene.hpp"
#include "gui/panels/panel.hpp"
#include "gui/render/figure_view.hpp"
#include "gui/render/point_cloud.hpp"

namespace kvscope::gui {

/// What is shown; `version` names it.
struct GeometryShown {
  const GeometryScene& scene;
  const Cloud& cloud;
  const plot::Figure& frame;  // flat_figure(scene, /*with_points=*/false)
  std::uint64_t version = 0;
  bool is_3d = false;
  std::optional<CloudPoint> query;  // the selected ones
  std::optional<CloudPoint> key;
};

/// What the mouse does.
struct GeometryHit {
  std::optional<std::size_t> point;  // of the cloud
  std::optional<std::size_t> mark;   // of the frame's panel: a mean
  bool clicked = false;
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
  bool is_rough() const { return points_ && points_->is_rough(); }
  /// How often points were painted, for tests and measurements.
  std::uint64_t n_paintings() const { return points_ ? points_->n_paintings() : 0; }
  /// Where a point was shown last, on screen.
  std::optional<ImVec2> place(const CloudPoint& point) const;

 private:
  /// What the axes were made of.
  struct AxesOf {
    std::uint64_t version = 0;
    bool is_3d = false;
    bool is_little = false;
    Orbit orbit;
    bool operator==(const AxesOf&) const = default;
  };
  void show_axes(PanelContext& context, const GeometryShown& shown);
  Camera camera(const GeometryShown& shown, ImVec2 low) const;
  bool turn(ImVec2 low, ImVec2 high);
  void draw_turned_axes(const PanelContext& context, ImVec2 low, ImVec2 high,
                        ImDrawList& list) const;
  std::optional<std::size_t> point_under_mouse(PanelContext& context, const GeometryShown& shown,
                                               ImDrawList& list);

  Orbit orbit_;
  std::optional<FigureView> axes_;
  AxesOf axes_of_;
  plot::Figure axes_figure_;
  std::uint64_t axes_version_ = 0;
  std::optional<PointCloud> points_;
  bool dragged_ = false;
};

}  // namespace kvscope::gui
