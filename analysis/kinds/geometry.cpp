#include "analysis/kinds/geometry.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "analysis/base/measure_layers.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/kinds/geometry_layer.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {

constexpr double kNinety = 0.9;  // of the variance, for the number of axes that hold it

/// Axes needed for `share` of the variance; NaN if there is no variance.
double axes_for(std::span<const double> explained, double share) {
  double sum = 0.0;
  for (std::size_t i = 0; i < explained.size(); ++i) {
    sum += explained[i];
    if (sum >= share) return static_cast<double>(i + 1);
  }
  return std::isnan(sum) ? std::numeric_limits<double>::quiet_NaN()
                         : static_cast<double>(explained.size());
}

/// Means over the layer's bases and heads: what a person reads first.
Json layer_summary(const GeometryPlan& plan, const GeometryLayer& layer) {
  Mean first, shown, ninety;
  for (Index basis = 0; basis < layer.explained.dim(0); ++basis) {
    const std::span<const double> shares = layer.explained.view().row(basis);
    first.add(shares[0]);
    shown.add(std::accumulate(shares.begin(), shares.begin() + plan.n_shown, 0.0));
    ninety.add(axes_for(shares, kNinety));
  }
  Json json;
  json["explained_first"] = json_number(first.value());
  json["explained_shown"] = json_number(shown.value());
  json["axes_for_90_percent"] = json_number(ninety.value());
  json["query_clustering"] = json_number(mean(layer.q_clustering.flat()));
  json["key_clustering"] = json_number(mean(layer.k_clustering.flat()));
  if (layer.rope_share != nullptr) {
    json["key_clustering_before_rope"] = json_number(mean(layer.k_clustering_before->flat()));
    json["rope_share"] = json_number(mean(layer.rope_share->flat()));
  }
  json["mean_query_mean_key"] = json_number(mean(layer.means.flat()));
  for (std::size_t n = 0; n < kNormNames.size(); ++n) {
    for (std::size_t i = 0; i < kNormStatistics.size(); ++i) {
      json[fmt::format("{}_norm_{}", kNormNames[n], kNormStatistics[i])] =
          json_number(layer.norms[n][i]->flat()[0]);
    }
  }
  return json;
}

void write_axes(ResultWriter& output, const GeometryPlan& plan, GeometryBasis basis) {
  const TraceInfo& part = plan.part;
  std::vector<Index> components(static_cast<std::size_t>(part.d_head));
  std::iota(components.begin(), components.end(), Index{1});
  write_head_axes(output, part);
  write_axis(output, "basis_head", plan.bases, "1",
             basis == GeometryBasis::head ? "query head of the basis" : "KV head of the basis");
  write_axis(output, "pos", plan.positions, "token", "position");
  write_axis(output, "component", components, "1", "principal axis");
  write_axis(output, "shown", std::span(components).first(static_cast<std::size_t>(plan.n_shown)),
             "1", "principal axis");
}

void add_plots(ResultWriter& output) {
  add_plot(output, "plot_explained", "explained", {"layer", "basis_head", "component"},
           "Share of the variance per principal axis");
  add_plot(output, "plot_queries", "queries/projection", {"layer", "q_head", "pos", "shown"},
           "Queries along the principal axes");
  add_plot(output, "plot_keys", "keys/projection", {"layer", "basis_head", "pos", "shown"},
           "Keys along the principal axes");
  add_plot(output, "plot_s_q", "queries/s_q", {"layer", "q_head", "pos"}, "S_q per query");
  add_plot(output, "plot_query_clustering", "clustering/queries", {"layer", "q_head"},
           "Mean cosine of the queries with their mean");
  add_plot(output, "plot_key_clustering", "clustering/keys", {"layer", "kv_head"},
           "Mean cosine of the keys with their mean");
  add_plot(output, "plot_means", "clustering/means", {"layer", "q_head"},
           "Cosine of the mean query and the mean key");
}

}  // namespace

Json analyze_geometry(const TraceSource& trace, const GeometryOptions& options,
                      const AnalysisRun& run) {
  check_fields(options);
  require_full_qkv(trace, "geometry");
  const GeometryPlan plan(trace.info(), options);
  const TraceInfo& part = plan.part;
  require_one_shape(part, "geometry");
  run.begin("geometry", trace, with_part(fields_to_json(options), part));
  write_axes(run.output, plan, options.basis);
  GeometryLayer arrays(run.output, plan);

  const auto measure = [&](Index, Index layer) {
    run.pool.parallel_for(n_of(part.kv_heads), [&](Index kv_slot, int) {
      check_stop(run.stop, "geometry");
      geometry_group(trace, options, plan, layer, kv_slot, arrays);
    });
    arrays.put_norm_statistics();
  };
  const auto summarize = [&](Index, Index, Json& entry) {
    entry.update(layer_summary(plan, arrays));
  };
  Json summary;
  summary["layers"] =
      measure_layers("geometry", part.layers, arrays.arrays, run.progress, measure, summarize);
  summary["totals"] = mean_of_layers(summary["layers"]);
  summary["totals"]["points_per_head"] = plan.positions.size();
  add_plots(run.output);
  return run.finish(std::move(summary));
}

}  // namespace kvscope
