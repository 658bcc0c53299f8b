// Queries and keys of one head along their principal axes, queries coloured by S_q: QuoKA's figure
// 2b.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/figures/maps.hpp"
#include "analysis/figures/query_panels.hpp"
#include "analysis/figures/selection.hpp"
#include "core/base/error.hpp"
#include "core/trace/result.hpp"

namespace kvscope {

namespace {

plot::Figure make_geometry(const FigureInput& input) {
  const ResultView& result = *input.results[0];
  const figures::ArrayData queries(result, "queries/projection");
  const figures::ArrayData keys(result, "keys/projection");
  const figures::ArrayData s_q(result, "queries/s_q");
  const figures::ArrayData explained(result, "explained");
  const auto layers = result.read("layer");
  const auto q_heads = result.read("q_head");
  const auto kv_heads = result.read("kv_head");
  const auto basis_heads = result.read("basis_head");

  const Index layer =
      figures::one_of(input.options.layers, "layers", static_cast<Index>(layers[0]));
  const Index head = figures::one_of(input.options.heads, "heads", static_cast<Index>(q_heads[0]));
  const Index l = figures::slot_of(layers, layer, "layer", result.name());
  const Index h = figures::slot_of(q_heads, head, "query head", result.name());
  const auto group = static_cast<Index>(q_heads.size() / std::max<std::size_t>(1, kv_heads.size()));
  const bool by_head = basis_heads.size() == q_heads.size() && q_heads.size() != kv_heads.size();
  const Index basis = by_head ? h : h / std::max<Index>(1, group);

  const auto axis_label = [&](Index component) {
    return figures::component_label(static_cast<std::size_t>(component),
                                    explained(l, basis, component));
  };
  plot::Panel panel;
  panel.x.label = axis_label(0);
  panel.y.label = axis_label(1);
  panel.aspect = 0.85;
  panel.legend = plot::LegendPlace::above;
  panel.colour = plot::ColourAxis{};
  panel.colour->axis.label = "Queries: " + figures::s_q_label(QuerySpan::prompt);

  plot::Scatter key_cloud;
  key_cloud.label = "keys";
  key_cloud.tone = {plot::Role::neutral, 0};
  key_cloud.size = 0.5;
  key_cloud.opacity = 0.6;
  plot::Scatter query_cloud;
  query_cloud.size = 0.5;
  query_cloud.opacity = 0.85;
  double mean_x = 0.0;
  double mean_y = 0.0;
  for (Index i = 0; i < keys.spec.shape[2]; ++i) {
    key_cloud.x.push_back(keys(l, basis, i, 0));
    key_cloud.y.push_back(keys(l, basis, i, 1));
  }
  for (Index i = 0; i < queries.spec.shape[2]; ++i) {
    query_cloud.x.push_back(queries(l, h, i, 0));
    query_cloud.y.push_back(queries(l, h, i, 1));
    query_cloud.value.push_back(s_q(l, h, i));
    mean_x += query_cloud.x.back();
    mean_y += query_cloud.y.back();
  }
  const auto n = static_cast<double>(query_cloud.x.size());
  const std::size_t n_keys = key_cloud.x.size();
  panel.marks.emplace_back(std::move(key_cloud));
  panel.marks.emplace_back(std::move(query_cloud));
  panel.marks.emplace_back(figures::mean_point(/*is_query=*/true, mean_x / n, mean_y / n));

  plot::Figure figure;
  figure.panels.push_back(std::move(panel));
  figure.caption.push_back(fmt::format(
      "Layer {}, query head {} and its KV head {}: n = {} queries and {} keys along the first two "
      "principal axes of the basis ({}); the mean is that of the shown queries.",
      layer, head,
      kv_heads[std::min(kv_heads.size() - 1,
                        static_cast<std::size_t>(h / std::max<Index>(1, group)))],
      n, n_keys,
      result.info().config.is_object() ? result.info().config.value("basis", "joint") : "joint"));
  return figure;
}

}  // namespace

FigureKind figure_geometry() {
  return {
      .name = "geometry",
      .shows =
          "queries and keys along their principal axes, queries coloured by S_q (QuoKA, figure "
          "2b)",
      .needs = "an analysis of the geometry of q and k",
      .command = "kvscope analyze geometry trace.h5 --out geometry.h5",
      .kinds = {"geometry"},
      .options = {"layers", "heads"},
      .make = make_geometry,
  };
}

}  // namespace kvscope
