#include "gui/model/geometry/geometry_scene.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/figures/query_panels.hpp"
#include "analysis/plot/scale.hpp"
#include "core/base/nan.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::gui {

namespace {

const plot::Tone kContext{plot::Role::neutral, 0};
const plot::Tone kKeptTone{plot::Role::series, 1};
const plot::Tone kQueryTone{plot::Role::series, 5};

/// A set of the points for which `value` is wanted: value(slot) gives its colour, empty = not in.
template <class Value>
SceneSet set_of(const std::vector<CloudPoint>& points, std::string label, bool are_queries,
                const Value& value) {
  SceneSet set{.label = std::move(label), .are_queries = are_queries};
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::optional<float> v = value(i);
    if (!v) continue;
    set.slot.push_back(static_cast<std::uint32_t>(i));
    set.at.push_back(points[i]);
    set.value.push_back(*v);
  }
  return set;
}

/// The same without values: in one tone.
template <class IsIn>
SceneSet plain_set(const std::vector<CloudPoint>& points, std::string label, bool are_queries,
                   plot::Tone tone, double opacity, const IsIn& is_in) {
  SceneSet set = set_of(points, std::move(label), are_queries, [&](std::size_t i) {
    return is_in(i) ? std::optional<float>(0.0f) : std::nullopt;
  });
  set.value.clear();
  set.tone = tone;
  set.opacity = opacity;
  return set;
}

constexpr auto kAll = [](std::size_t) { return true; };

std::optional<plot::Range> range_of(const std::vector<SceneSet>& sets, plot::ScaleKind scale) {
  plot::Extent extent(scale);
  for (const SceneSet& set : sets) {
    for (const float v : set.value) extent.add(static_cast<double>(v));
  }
  if (extent.empty()) return std::nullopt;
  return extent.range();
}

/// The sets of the queries, coloured; those without a number apart.
void add_valued_queries(GeometryScene& scene, const GeometryHead& head,
                        const std::vector<float>& values, const std::string& without) {
  SceneSet rest = plain_set(head.queries, without, /*are_queries=*/true, kContext, 0.3,
                            [&](std::size_t i) { return std::isnan(values[i]); });
  SceneSet valued = set_of(head.queries, "", /*are_queries=*/true, [&](std::size_t i) {
    return std::isnan(values[i]) ? std::nullopt : std::optional<float>(values[i]);
  });
  valued.opacity = 0.85;
  if (rest.at.size() > valued.at.size()) valued.size = 1.7;  // a few points, larger than the many
  if (!rest.at.empty()) scene.sets.push_back(std::move(rest));
  if (!valued.at.empty()) scene.sets.push_back(std::move(valued));
}

void add_s_q(GeometryScene& scene, const GeometryHead& head, const GeometrySwitches& switches) {
  if (switches.keys) {
    scene.sets.push_back(plain_set(head.keys, "keys", /*are_queries=*/false, kContext, 0.6, kAll));
  }
  if (switches.queries) {
    add_valued_queries(scene, head, {head.s_q.begin(), head.s_q.end()},
                       "queries alone in their chunk");
  }
  plot::ColourAxis axis;
  axis.axis.label = "Queries: " + figures::s_q_label(head.span);
  axis.axis.range = range_of(scene.sets, plot::ScaleKind::linear);
  if (axis.axis.range) scene.colour = axis;
}

void add_positions(GeometryScene& scene, const GeometryHead& head,
                   const GeometrySwitches& switches) {
  const auto position = [&](std::size_t i) {
    return std::optional<float>(static_cast<float>(head.pos[i]));
  };
  if (switches.keys) {
    scene.sets.push_back(set_of(head.keys, "", /*are_queries=*/false, position));
    scene.sets.back().opacity = 0.6;
  }
  if (switches.queries) {
    scene.sets.push_back(set_of(head.queries, "", /*are_queries=*/true, position));
    scene.sets.back().opacity = 0.85;
  }
  const double last = std::max(1.0, static_cast<double>(head.n_tokens - 1));
  scene.colour = {.axis = {.label = "Position",
                           .range = plot::Range{0.0, last},
                           .format = plot::TickFormat::tokens}};
}

void add_weights(GeometryScene& scene, const GeometryHead& head, const GeometrySwitches& switches,
                 const LargestWeights* weights) {
  if (switches.keys) {
    scene.sets.push_back(plain_set(head.keys, "keys", /*are_queries=*/false, kContext, 0.6, kAll));
  }
  if (switches.queries) {
    std::vector<float> values(head.pos.size(), kNanF);
    std::size_t next = 0;  // both lists of positions ascend
    std::size_t measured = 0;
    for (std::size_t i = 0; weights != nullptr && i < values.size(); ++i) {
      while (next < weights->pos.size() && weights->pos[next] < head.pos[i]) ++next;
      if (next == weights->pos.size() || weights->pos[next] != head.pos[i]) continue;
      ++measured;
      const float weight = std::exp(weights->log_weight[next]);
      if (weight > 0.0f) values[i] = weight;
    }
    add_valued_queries(scene, head, values, "queries not measured");
    if (weights != nullptr) {
      scene.caption.push_back(fmt::format(
          "The largest attention weight of {} queries, evenly spaced over the trace; the sink "
          "(key 0) is left out, without renormalisation.",
          measured));
    }
  }
  plot::ColourAxis axis;
  axis.axis.label = "Queries: largest attention weight";
  axis.axis.scale = plot::ScaleKind::log10;
  axis.axis.range = range_of(scene.sets, plot::ScaleKind::log10);
  if (axis.axis.range) scene.colour = axis;
}

void add_kept(GeometryScene& scene, const GeometryHead& head, const GeometrySwitches& switches,
              const Reading* kept, const std::string& method) {
  if (switches.queries) {
    scene.sets.push_back(
        plain_set(head.queries, "queries", /*are_queries=*/true, kQueryTone, 0.25, kAll));
  }
  if (!switches.keys) return;
  if (kept == nullptr || kept->outcomes.of.empty()) {
    scene.sets.push_back(plain_set(head.keys, "keys", /*are_queries=*/false, kContext, 0.6, kAll));
    return;
  }
  const AttentionRow& row = kept->row.row;
  const KeyUses& uses = kept->outcomes;
  const auto is_visible = [&](std::size_t i) { return uses.at(head.pos[i]) != KeyUse::unknown; };
  const auto is_kept = [&](std::size_t i) { return uses.keeps(head.pos[i]); };
  const auto add = [&](std::string label, plot::Tone tone, double opacity, const auto& is_in) {
    SceneSet set =
        plain_set(head.keys, std::move(label), /*are_queries=*/false, tone, opacity, is_in);
    if (!set.at.empty()) scene.sets.push_back(std::move(set));
  };
  add("keys it does not see (faint)", kContext, 0.12,
      [&](std::size_t i) { return !is_visible(i); });
  add("keys left out", kContext, 0.6, [&](std::size_t i) { return is_visible(i) && !is_kept(i); });
  add(fmt::format("keys kept by {}", method), kKeptTone, 0.95, is_kept);
  const auto [n_kept, mass] = uses.kept_of(row);
  scene.caption.push_back(
      fmt::format("{} keeps {} of the {} keys that the query at position {} sees, with {} of "
                  "its dense attention.",
                  method, n_kept, row.visible.size(), row.query, percent_text(mass)));
}

plot::Scatter scatter_of(const SceneSet& set) {
  return {.label = set.label, .tone = set.tone, .size = 0.5 * set.size, .opacity = set.opacity};
}

/// Panel with points and means where `place` puts them.
template <class PlacePoint>
plot::Panel panel_of(const GeometryScene& scene, std::size_t stride, const PlacePoint& place) {
  plot::Panel panel{
      .colour = scene.colour, .aspect = 0.85, .grid = true, .legend = plot::LegendPlace::above};
  for (const SceneSet& set : scene.sets) {
    plot::Scatter scatter = scatter_of(set);
    for (std::size_t i = 0; i < set.at.size(); i += stride) {
      const auto [x, y] = place(set.at[i]);
      scatter.add(x, y, set.slot[i]);
      if (!set.value.empty()) scatter.value.push_back(static_cast<double>(set.value[i]));
    }
    panel.marks.emplace_back(std::move(scatter));
  }
  if (scene.shows_keys) {
    const auto [x, y] = place(scene.mean_key);
    panel.marks.emplace_back(figures::mean_point(/*is_query=*/false, x, y));
  }
  if (scene.shows_queries) {
    const auto [x, y] = place(scene.mean_query);
    panel.marks.emplace_back(figures::mean_point(/*is_query=*/true, x, y));
  }
  return panel;
}

plot::Figure figure_of(const GeometryScene& scene, plot::Panel panel) {
  plot::Figure figure;
  figure.name = "geometry";
  figure.panels.push_back(std::move(panel));
  figure.caption = scene.caption;
  return figure;
}

plot::Range padded_axis(const CloudBox& box, std::size_t c) {
  plot::Extent extent(plot::ScaleKind::linear);
  extent.add(static_cast<double>(box.low[c]));
  extent.add(static_cast<double>(box.high[c]));
  return plot::padded(extent.range(), plot::ScaleKind::linear, /*keep_zero=*/false);
}

}  // namespace

GeometryScene geometry_scene(const GeometryHead& head, const GeometrySwitches& switches,
                             const LargestWeights* weights, const Reading* kept,
                             const std::string& method) {
  GeometryScene scene;
  if (switches.colour == GeometryColour::s_q) add_s_q(scene, head, switches);
  if (switches.colour == GeometryColour::position) add_positions(scene, head, switches);
  if (switches.colour == GeometryColour::max_weight) add_weights(scene, head, switches, weights);
  if (switches.colour == GeometryColour::kept) add_kept(scene, head, switches, kept, method);
  for (std::size_t c = 0; c < 3; ++c) {
    const double share = head.explained[c];
    scene.axis_labels[c] = figures::component_label(c, share);
    scene.short_labels[c] = std::isnan(share) ? scene.axis_labels[c]
                                              : fmt::format("PC{} {:.0f} %", c + 1, 100.0 * share);
  }
  scene.mean_query = head.mean_query;
  scene.mean_key = head.mean_key;
  scene.shows_queries = switches.queries;
  scene.shows_keys = switches.keys;
  std::vector<CloudPoint> all = head.queries;
  all.insert(all.end(), head.keys.begin(), head.keys.end());
  scene.box = box_of(all).value_or(CloudBox{});
  const bool has_all = static_cast<Index>(head.pos.size()) == head.n_tokens;
  scene.caption.insert(
      scene.caption.begin(),
      fmt::format("Layer {}, query head {} and its KV head {}: {} positions{} along the principal "
                  "axes of {}; the means are those of the shown positions in the prompt.",
                  head.layer, head.q_head, head.kv_head, head.pos.size(),
                  has_all ? "" : fmt::format(" of {}, evenly spaced,", head.n_tokens),
                  head.basis == GeometryBasis::group  ? "the KV head's keys and all its queries"
                  : head.basis == GeometryBasis::head ? "the KV head's keys and this head's queries"
                                                      : "the KV head's keys"));
  return scene;
}

plot::Figure flat_figure(const GeometryScene& scene) {
  plot::Panel panel = panel_of(scene, 1, [](const CloudPoint& p) {
    return std::pair(static_cast<double>(p[0]), static_cast<double>(p[1]));
  });
  panel.x.label = scene.axis_labels[0];
  panel.y.label = scene.axis_labels[1];
  panel.x.range = padded_axis(scene.box, 0);
  panel.y.range = padded_axis(scene.box, 1);
  return figure_of(scene, std::move(panel));
}

Camera orbit_camera(const GeometryScene& scene, const Orbit& orbit) {
  // A view of 2 x 2 around the middle: at zoom 1 everything is inside.
  Camera camera = orbit.camera(scene.box, 2.0, 2.0);
  camera.offset[0] -= 1.0;
  camera.offset[1] = 1.0 - camera.offset[1];
  for (double& step : camera.down) step = -step;
  return camera;
}

plot::Figure orbit_figure(const GeometryScene& scene, const Orbit& orbit, std::size_t stride) {
  const Camera camera = orbit_camera(scene, orbit);
  plot::Panel panel = panel_of(scene, stride, [&](const CloudPoint& p) {
    const auto at = camera.project(p);
    return std::pair(static_cast<double>(at[0]), static_cast<double>(at[1]));
  });
  panel.equal_scales = true;
  panel.x.range = panel.y.range = plot::Range{-1.05, 1.05};
  const auto& names = scene.short_labels;
  panel.x.label = fmt::format("to the right, of {}, {}, {}", names[0], names[1], names[2]);
  panel.y.label = "upwards";
  plot::Figure figure = figure_of(scene, std::move(panel));
  figure.caption.push_back(
      fmt::format("Seen along three axes, {}, {} and {}, turned by {:.0f}° and tipped by {:.0f}°; "
                  "the frame's unit is the radius of the cloud divided by {:.2g}.",
                  scene.axis_labels[0], scene.axis_labels[1], scene.axis_labels[2], orbit.yaw,
                  orbit.pitch, orbit.zoom));
  return figure;
}

}  // namespace kvscope::gui
