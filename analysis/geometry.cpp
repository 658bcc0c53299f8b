#include "analysis/geometry.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "analysis/geometry_layer.hpp"
#include "analysis/statistics.hpp"

namespace kvscope {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kNinety = 0.9;  // of the variance, for the number of axes that hold it

/// Mean, 5th and 95th percentile of the norms of one layer.
struct NormSummary {
  std::string_view name;  // "q"
  std::array<double, 3> value;
};
constexpr std::array<std::string_view, 3> kNormStatistics = {"mean", "p05", "p95"};
constexpr std::array<std::string_view, 3> kNormTexts = {"mean", "5th percentile",
                                                        "95th percentile"};
constexpr std::array<std::string_view, 3> kNormNames = {"q", "k", "v"};

std::array<NormSummary, 3> norm_summaries(const GeometryLayer& layer) {
  const auto summary = [](std::string_view name, std::span<const double> norms) {
    return NormSummary{name, {mean(norms), quantile(norms, 0.05), quantile(norms, 0.95)}};
  };
  return {summary(kNormNames[0], layer.all_q_norms.flat()),
          summary(kNormNames[1], layer.all_k_norms.flat()),
          summary(kNormNames[2], layer.all_v_norms.flat())};
}

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
Json layer_summary(const GeometryPlan& plan, const GeometryLayer& layer,
                   const std::array<NormSummary, 3>& norms) {
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
  json["query_clustering"] = json_number(mean(layer.q_clustering));
  json["key_clustering"] = json_number(mean(layer.k_clustering));
  json["mean_query_mean_key"] = json_number(mean(layer.means));
  for (const NormSummary& norm : norms) {
    for (std::size_t i = 0; i < kNormStatistics.size(); ++i) {
      json[fmt::format("{}_norm_{}", norm.name, kNormStatistics[i])] = json_number(norm.value[i]);
    }
  }
  return json;
}

void declare_arrays(ResultSink& sink, const GeometryPlan& plan, GeometryBasis basis) {
  // coordinates
  const TraceInfo& part = plan.part;
  std::vector<Index> components(static_cast<std::size_t>(part.d_head));
  std::iota(components.begin(), components.end(), Index{1});
  write_head_axes(sink, part);
  write_axis(sink, "basis_head", plan.bases, "1",
             basis == GeometryBasis::head ? "query head of the basis" : "KV head of the basis");
  write_axis(sink, "pos", plan.positions, "token", "position");
  write_axis(sink, "component", components, "1", "principal axis");
  write_axis(sink, "shown", std::span(components).first(static_cast<std::size_t>(plan.n_shown)),
             "1", "principal axis");

  const auto n_layers = static_cast<Index>(part.layers.size());
  const auto n_q = static_cast<Index>(part.q_heads.size());
  const auto n_kv = static_cast<Index>(part.kv_heads.size());
  const auto n_bases = static_cast<Index>(plan.bases.size());
  const auto n_points = static_cast<Index>(plan.positions.size());
  const auto declare = [&](std::string name, ResultType type, Shape shape,
                           std::vector<std::string> axes, std::string text) {
    sink.declare({std::move(name), type, shape, std::move(axes), "1", std::move(text)});
  };

  // the fit
  const Shape fit{n_layers, n_bases, part.d_head};
  declare("variance", ResultType::f64, fit, {"layer", "basis", "component"},
          "variance along the axis");
  declare("explained", ResultType::f64, fit, {"layer", "basis", "component"},
          "share of the variance");
  declare("center", ResultType::f64, fit, {"layer", "basis", "channel"}, "mean of the fitted rows");
  declare("directions", ResultType::f64, {n_layers, n_bases, plan.n_shown, part.d_head},
          {"layer", "basis", "shown", "channel"}, "principal axes");

  // the points
  declare("queries/projection", ResultType::f32, {n_layers, n_q, n_points, plan.n_shown},
          {"layer", "q_head", "pos", "shown"}, "query along the principal axes");
  declare("keys/projection", ResultType::f32, {n_layers, n_bases, n_points, plan.n_shown},
          {"layer", "basis", "pos", "shown"}, "key along the principal axes");
  const auto per_point = [&](std::string name, Index n_heads, const char* head, std::string text) {
    declare(std::move(name), ResultType::f32, {n_layers, n_heads, n_points}, {"layer", head, "pos"},
            std::move(text));
  };
  per_point("queries/s_q", n_q, "q_head", "S_q of the query");
  per_point("queries/cos_mean", n_q, "q_head", "cosine of query and mean query");
  per_point("queries/norm", n_q, "q_head", "norm of the query");
  per_point("keys/cos_mean", n_kv, "kv_head", "cosine of key and mean key");
  per_point("keys/norm", n_kv, "kv_head", "norm of the key");

  // over all positions
  declare("clustering/queries", ResultType::f64, {n_layers, n_q}, {"layer", "q_head"},
          "mean cosine of query and mean query");
  declare("clustering/keys", ResultType::f64, {n_layers, n_kv}, {"layer", "kv_head"},
          "mean cosine of key and mean key");
  declare("clustering/means", ResultType::f64, {n_layers, n_q}, {"layer", "q_head"},
          "cosine of mean query and mean key");
  for (std::string_view name : kNormNames) {
    for (std::size_t i = 0; i < kNormStatistics.size(); ++i) {
      declare(fmt::format("norms/{}_{}", name, kNormStatistics[i]), ResultType::f64, {n_layers},
              {"layer"}, fmt::format("{} of |{}|", kNormTexts[i], name));
    }
  }
}

void write_layer(ResultSink& sink, Index slot, const GeometryLayer& layer,
                 const std::array<NormSummary, 3>& norms) {
  sink.write<double>("variance", slot, layer.variance.flat());
  sink.write<double>("explained", slot, layer.explained.flat());
  sink.write<double>("center", slot, layer.center.flat());
  sink.write<double>("directions", slot, layer.directions.flat());
  sink.write<float>("queries/projection", slot, layer.q_projection.flat());
  sink.write<float>("keys/projection", slot, layer.k_projection.flat());
  sink.write<float>("queries/s_q", slot, layer.s_q.flat());
  sink.write<float>("queries/cos_mean", slot, layer.q_cos.flat());
  sink.write<float>("queries/norm", slot, layer.q_norm.flat());
  sink.write<float>("keys/cos_mean", slot, layer.k_cos.flat());
  sink.write<float>("keys/norm", slot, layer.k_norm.flat());
  sink.write<double>("clustering/queries", slot, layer.q_clustering);
  sink.write<double>("clustering/keys", slot, layer.k_clustering);
  sink.write<double>("clustering/means", slot, layer.means);
  for (const NormSummary& norm : norms) {
    for (std::size_t i = 0; i < kNormStatistics.size(); ++i) {
      sink.write<double>(fmt::format("norms/{}_{}", norm.name, kNormStatistics[i]), slot,
                         std::span(&norm.value[i], 1));
    }
  }
}

void add_plots(ResultSink& sink) {
  sink.add_plot({"plot_explained",
                 "explained",
                 {"layer", "basis_head", "component"},
                 "Share of the variance per principal axis"});
  sink.add_plot({"plot_queries",
                 "queries/projection",
                 {"layer", "q_head", "pos", "shown"},
                 "Queries along the principal axes"});
  sink.add_plot({"plot_keys",
                 "keys/projection",
                 {"layer", "basis_head", "pos", "shown"},
                 "Keys along the principal axes"});
  sink.add_plot({"plot_s_q", "queries/s_q", {"layer", "q_head", "pos"}, "S_q per query"});
  sink.add_plot({"plot_query_clustering",
                 "clustering/queries",
                 {"layer", "q_head"},
                 "Mean cosine of the queries with their mean"});
  sink.add_plot({"plot_key_clustering",
                 "clustering/keys",
                 {"layer", "kv_head"},
                 "Mean cosine of the keys with their mean"});
  sink.add_plot({"plot_means",
                 "clustering/means",
                 {"layer", "q_head"},
                 "Cosine of the mean query and the mean key"});
}

}  // namespace

Json analyze_geometry(const TraceSource& trace, const GeometryOptions& options, ResultSink& sink,
                      ThreadPool& pool, const ProgressFn& progress, std::stop_token stop,
                      const ResultProvenance& provenance) {
  check_fields(options);
  require_full_qkv(trace, "geometry");
  const GeometryPlan plan(trace.info(), options);
  const TraceInfo& part = plan.part;
  const TraceSource* const traces[] = {&trace};
  Json config = fields_to_json(options);
  config["layers"] = part.layers;
  config["heads"] = part.q_heads;
  sink.begin(make_result_info("geometry", traces, config, provenance));
  declare_arrays(sink, plan, options.basis);

  Json summary;
  summary["layers"] = Json::array();
  const auto n_layers = static_cast<Index>(part.layers.size());
  for (Index slot = 0; slot < n_layers; ++slot) {
    const Index layer = part.layers[static_cast<std::size_t>(slot)];
    GeometryLayer arrays(plan);
    pool.parallel_for(static_cast<Index>(part.kv_heads.size()), [&](Index kv_slot, int) {
      check_stop(stop, "geometry");
      geometry_group(trace, options, plan, layer, kv_slot, arrays);
    });
    const auto norms = norm_summaries(arrays);
    write_layer(sink, slot, arrays, norms);
    Json entry;
    entry["layer"] = layer;
    entry.update(layer_summary(plan, arrays, norms));
    summary["layers"].push_back(entry);
    if (progress) progress({"geometry", slot + 1, n_layers, "layers"});
  }
  summary["totals"] = mean_of_layers(summary["layers"]);
  summary["totals"]["points_per_head"] = plan.positions.size();
  add_plots(sink);
  sink.finish(summary);
  return summary;
}

}  // namespace kvscope
