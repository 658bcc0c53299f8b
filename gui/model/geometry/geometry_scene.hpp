// What the geometry panel shows: sets of points with what their colours stand for, as a cloud on
// screen and as a figure in a file.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/plot/figure.hpp"
#include "analysis/plot/theme.hpp"
#include "gui/model/geometry/cloud.hpp"
#include "gui/model/geometry/geometry_view.hpp"
#include "gui/model/tokens/token_reading.hpp"

namespace kvscope::gui {

/// What the colours say.
enum class GeometryColour {
  s_q,         // queries by S_q; keys are context
  position,    // both by their position
  max_weight,  // queries by their largest attention weight, the sink left out
  kept,        // keys: kept or not by the session's method for the selected query
};

/// The panel's switches.
struct GeometrySwitches {
  bool is_3d = option(is_3d, "is-3d", false, "three axes, seen from any side");
  GeometryBasis basis = option(
      basis, "basis", GeometryBasis::group,
      "axes fitted to: group (a KV head's keys and all its queries), head (its keys and this "
      "query head) or keys (its keys alone)");
  GeometryColour colour = option(colour, "colour", GeometryColour::s_q,
                                 "colours: S_q of the queries, positions, the queries' largest "
                                 "attention weight, or the keys that the method keeps for the "
                                 "selected query");
  QuerySpan span = option(span, "span", QuerySpan::prompt,
                          "S_q compares a query with the mean of the prompt or of its own chunk");
  bool keys = option(keys, "keys", true, "show the keys");
  bool queries = option(queries, "queries", true, "show the queries");
  bool operator==(const GeometrySwitches&) const = default;
};

/// Points drawn alike. `slot` are indices into GeometryHead's arrays.
struct SceneSet {
  std::string label;
  plot::Tone tone;
  bool are_queries = false;
  double size = 1.0;
  double opacity = 1.0;
  std::vector<std::uint32_t> slot;
  std::vector<CloudPoint> at;
  std::vector<float> value;  // empty, or one per point: its place on the colour axis
};

/// Everything that is seen, in drawing order.
struct GeometryScene {
  std::vector<SceneSet> sets;
  std::optional<plot::ColourAxis> colour;   // with its range
  std::array<std::string, 3> axis_labels;   // "PC1 (34 % of the variance)"
  std::array<std::string, 3> short_labels;  // "PC1 34%"
  CloudPoint mean_query{};
  CloudPoint mean_key{};
  bool shows_queries = true;
  bool shows_keys = true;
  CloudBox box;                      // around all points
  std::vector<std::string> caption;  // of the points; the trace is named by who knows it
};

/// `weights`: for GeometryColour::max_weight; null: no query has a colour yet. `kept`: for
/// GeometryColour::kept, what the query reads under `method`; null: likewise.
GeometryScene geometry_scene(const GeometryHead& head, const GeometrySwitches& switches,
                             const LargestWeights* weights, const Reading* kept,
                             const std::string& method);

/// The first two axes. Marks: a scatter for each set, whose points are `of` SceneSet::slot, then
/// the means of keys and of queries, as far as they are shown.
plot::Figure flat_figure(const GeometryScene& scene);
/// What is seen from the side of the orbit, as a flat figure; its axes are those of the screen.
/// `stride`: 1 draws all points, n every n-th.
plot::Figure orbit_figure(const GeometryScene& scene, const Orbit& orbit, std::size_t stride = 1);
/// The orbit's camera in units of that figure's axes, y upwards.
Camera orbit_camera(const GeometryScene& scene, const Orbit& orbit);

}  // namespace kvscope::gui
