#include "analysis/kinds/geometry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/base/mapped.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/base/statistics.hpp"
#include "core/base/evenly_spaced.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"
#include "core/tensor/principal_axes.hpp"

namespace kvscope {

namespace {

/// What does not change from layer to layer.
struct GeometryPlan {
  GeometryPlan(const TraceInfo& info, const GeometryOptions& options);
  TraceInfo part;                // the selected layers and heads
  std::vector<Index> positions;  // shown, ascending
  std::vector<Index> bases;      // the head that each basis belongs to
  Index n_shown = 0;             // axes shown: 3, or d_head if that is less
};

/// Mean, 5th and 95th percentile of the norms of one layer.
constexpr std::array<std::string_view, 3> kNormStatistics = {"mean", "p05", "p95"};
constexpr std::array<std::string_view, 3> kNormNames = {"q", "k", "v"};

/// All arrays of one layer, by slots of the selected heads; see geometry.hpp.
struct GeometryLayer {
  GeometryLayer(ResultWriter& output, const GeometryPlan& plan);
  /// Summarises the norms of every position, once all groups are filled.
  void put_norm_statistics();

  LayerArrays arrays;
  Tensor<double>&variance, &explained;                  // [basis, component]
  Tensor<double>& center;                               // [basis, channel]
  Tensor<double>& directions;                           // [basis, shown, channel]
  Tensor<float>& q_projection;                          // [q_head, pos, shown]
  Tensor<float>& k_projection;                          // [basis, pos, shown]
  Tensor<float>&s_q, &q_cos, &q_norm;                   // [q_head, pos]
  Tensor<float>&k_cos, &k_norm;                         // [kv_head, pos]
  Tensor<double>& q_clustering;                         // [q_head]
  Tensor<double>& k_clustering;                         // [kv_head]
  Tensor<double>* k_clustering_before = nullptr;        // [kv_head], with keys before RoPE
  Tensor<double>* rope_share = nullptr;                 // the same
  Tensor<double>& means;                                // [q_head]
  std::array<std::array<Tensor<double>*, 3>, 3> norms;  // by kNormNames and kNormStatistics: []
  std::array<Tensor<double>, 3> all_norms;  // by kNormNames, [head, n_tokens]: every position
};

constexpr Index kShownAxes = 3;

/// [head, pos]; head: "q_head" or "kv_head".
Tensor<float>& per_point(LayerArrays& arrays, const GeometryPlan& plan, const char* name,
                         std::string_view head, const char* text) {
  const TraceInfo& part = plan.part;
  const Index n_heads = n_of(head == "q_head" ? part.q_heads : part.kv_heads);
  return arrays.add<float>(name, {n_heads, n_of(plan.positions)}, {std::string(head), "pos"}, "1",
                           text);
}

double cosine(std::span<const double> a, std::span<const double> b, double eps) {
  return dot_of(a, b) / (std::max(norm_of(a), eps) * std::max(norm_of(b), eps));
}

/// out[i] = values[positions[i]], in the precision of the result.
void put_shown(std::span<const double> values, std::span<const Index> positions,
               std::span<float> out) {
  for (std::size_t i = 0; i < positions.size(); ++i)
    out[i] = static_cast<float>(values[static_cast<std::size_t>(positions[i])]);
}

void put_norms(TensorView<const float> rows, std::span<double> out) {
  for (Index i = 0; i < rows.dim(0); ++i) out[static_cast<std::size_t>(i)] = norm_of(rows.row(i));
}

/// Coordinates of the shown rows. out: [pos, shown]
void put_projection(const PrincipalAxes& axes, TensorView<const float> rows,
                    std::span<const Index> positions, TensorView<float> out) {
  for (std::size_t i = 0; i < positions.size(); ++i)
    axes.project(rows.row(positions[i]), out.row(static_cast<Index>(i)));
}

void put_axes(const PrincipalAxes& axes, Index basis, Index n_shown, GeometryLayer& out) {
  const std::vector<double> explained = axes.explained();
  std::copy(axes.variance.begin(), axes.variance.end(), out.variance.view().row(basis).begin());
  std::copy(explained.begin(), explained.end(), out.explained.view().row(basis).begin());
  std::copy(axes.center.begin(), axes.center.end(), out.center.view().row(basis).begin());
  for (Index r = 0; r < n_shown; ++r) {
    const auto direction = axes.directions.view().row(r);
    std::copy(direction.begin(), direction.end(), out.directions.sub(basis).row(r).begin());
  }
}

GeometryPlan::GeometryPlan(const TraceInfo& info, const GeometryOptions& options)
    : part(selected_part(info, options.selection)),
      positions(evenly_spaced(0, info.n_tokens, options.max_points)),
      bases(options.basis == GeometryBasis::head ? part.q_heads : part.kv_heads),
      n_shown(std::min(kShownAxes, part.d_head)) {}

GeometryLayer::GeometryLayer(ResultWriter& output, const GeometryPlan& plan)
    : arrays(output, n_of(plan.part.layers)),
      // the fit
      variance(arrays.add<double>("variance", {n_of(plan.bases), plan.part.d_head},
                                  {"basis", "component"}, "1", "variance along the axis")),
      explained(arrays.add<double>("explained", {n_of(plan.bases), plan.part.d_head},
                                   {"basis", "component"}, "1", "share of the variance")),
      center(arrays.add<double>("center", {n_of(plan.bases), plan.part.d_head},
                                {"basis", "channel"}, "1", "mean of the fitted rows")),
      directions(arrays.add<double>("directions",
                                    {n_of(plan.bases), plan.n_shown, plan.part.d_head},
                                    {"basis", "shown", "channel"}, "1", "principal axes")),
      // the points
      q_projection(arrays.add<float>(
          "queries/projection", {n_of(plan.part.q_heads), n_of(plan.positions), plan.n_shown},
          {"q_head", "pos", "shown"}, "1", "query along the principal axes")),
      k_projection(arrays.add<float>(
          "keys/projection", {n_of(plan.bases), n_of(plan.positions), plan.n_shown},
          {"basis", "pos", "shown"}, "1", "key along the principal axes")),
      s_q(per_point(arrays, plan, "queries/s_q", "q_head", "S_q of the query")),
      q_cos(
          per_point(arrays, plan, "queries/cos_mean", "q_head", "cosine of query and mean query")),
      q_norm(per_point(arrays, plan, "queries/norm", "q_head", "norm of the query")),
      k_cos(per_point(arrays, plan, "keys/cos_mean", "kv_head", "cosine of key and mean key")),
      k_norm(per_point(arrays, plan, "keys/norm", "kv_head", "norm of the key")),
      // over all positions
      q_clustering(arrays.add<double>("clustering/queries", {n_of(plan.part.q_heads)}, {"q_head"},
                                      "1", "mean cosine of query and mean query")),
      k_clustering(arrays.add<double>("clustering/keys", {n_of(plan.part.kv_heads)}, {"kv_head"},
                                      "1", "mean cosine of key and mean key")),
      means(arrays.add<double>("clustering/means", {n_of(plan.part.q_heads)}, {"q_head"}, "1",
                               "cosine of mean query and mean key")) {
  if (plan.part.capture.k_pre_rope) {
    const Shape heads{n_of(plan.part.kv_heads)};
    k_clustering_before = &arrays.add<double>("clustering/keys_before_rope", heads, {"kv_head"},
                                              "1", "mean cosine of key and mean key, before RoPE");
    rope_share = &arrays.add<double>("clustering/rope_share", heads, {"kv_head"}, "1",
                                     "share of the spread of keys that RoPE makes");
  }
  constexpr std::array<std::string_view, 3> kTexts = {"mean", "5th percentile", "95th percentile"};
  for (std::size_t n = 0; n < kNormNames.size(); ++n) {
    for (std::size_t i = 0; i < kNormStatistics.size(); ++i) {
      norms[n][i] =
          &arrays.add<double>(fmt::format("norms/{}_{}", kNormNames[n], kNormStatistics[i]), {}, {},
                              "1", fmt::format("{} of |{}|", kTexts[i], kNormNames[n]));
    }
    const Index n_heads = n_of(n == 0 ? plan.part.q_heads : plan.part.kv_heads);
    all_norms[n] = Tensor<double>({n_heads, plan.part.n_tokens});
  }
}

void GeometryLayer::put_norm_statistics() {
  for (std::size_t n = 0; n < norms.size(); ++n) {
    const auto all = all_norms[n].flat();
    const double values[] = {mean(all), quantile(all, 0.05), quantile(all, 0.95)};
    for (std::size_t i = 0; i < norms[n].size(); ++i) norms[n][i]->flat()[0] = values[i];
  }
}

/// Fills the slots of one KV head, its query heads and its bases; groups may run in parallel.
void geometry_group(const TraceSource& trace, const GeometryOptions& options,
                    const GeometryPlan& plan, Index layer, Index kv_slot, GeometryLayer& out) {
  const TraceInfo& part = plan.part;
  const TokenRange all{0, part.n_tokens};
  const QueryScoring scoring = options.scoring();
  const Index kv_head = part.kv_heads[static_cast<std::size_t>(kv_slot)];
  const std::vector<Index> q_slots = q_slots_of(part, layer, kv_head);

  // the rows, and what they are compared with
  const Tensor<float> k = trace.read_k(layer, kv_head, all);
  std::vector<Tensor<float>> q;
  for (Index slot : q_slots)
    q.push_back(trace.read_q(layer, part.q_heads[static_cast<std::size_t>(slot)], all));
  put_norms(trace.read_v(layer, kv_head, all).view(), out.all_norms[2].view().row(kv_slot));
  const std::vector<double> mean_key = prompt_mean(part, k.view(), scoring);

  // keys: cosines and norms
  const std::vector<double> k_cosines = quoka_cosines(k.view(), mean_key, options.eps);
  out.k_clustering(kv_slot) = mean(k_cosines);
  put_shown(k_cosines, plan.positions, out.k_cos.view().row(kv_slot));
  if (out.rope_share != nullptr) {
    const Tensor<float> before = trace.read_side(SideTensor::k_pre_rope, layer, kv_head, all);
    const std::vector<double> mean_before = prompt_mean(part, before.view(), scoring);
    const double tight = mean(quoka_cosines(before.view(), mean_before, options.eps));
    const double wide = mean(k_cosines);
    (*out.k_clustering_before)(kv_slot) = tight;
    (*out.rope_share)(kv_slot) = wide < 1.0 ? (tight - wide) / (1.0 - wide) : kNan;
  }
  put_norms(k.view(), out.all_norms[1].view().row(kv_slot));
  put_shown(out.all_norms[1].view().row(kv_slot), plan.positions, out.k_norm.view().row(kv_slot));

  // queries: scores, cosines and norms
  for (std::size_t h = 0; h < q.size(); ++h) {
    const Index slot = q_slots[h];
    const auto rows = q[h].view();
    const std::vector<double> mean_query = prompt_mean(part, rows, scoring);
    const std::vector<double> cosines = quoka_cosines(rows, mean_query, options.eps);
    out.q_clustering(slot) = mean(cosines);
    out.means(slot) = cosine(mean_query, mean_key, options.eps);
    put_shown(query_scores(part, rows, options.span, scoring), plan.positions,
              out.s_q.view().row(slot));
    put_shown(cosines, plan.positions, out.q_cos.view().row(slot));
    put_norms(rows, out.all_norms[0].view().row(slot));
    put_shown(out.all_norms[0].view().row(slot), plan.positions, out.q_norm.view().row(slot));
  }

  // axes and projections
  if (options.basis == GeometryBasis::head) {
    for (std::size_t h = 0; h < q.size(); ++h) {
      const TensorView<const float> sets[] = {q[h].view(), k.view()};
      const PrincipalAxes axes = principal_axes(sets);
      put_axes(axes, q_slots[h], plan.n_shown, out);
      put_projection(axes, q[h].view(), plan.positions, out.q_projection.sub(q_slots[h]));
      put_projection(axes, k.view(), plan.positions, out.k_projection.sub(q_slots[h]));
    }
    return;
  }
  std::vector<TensorView<const float>> sets = {k.view()};
  if (options.basis == GeometryBasis::group) {
    for (const auto& head : q) sets.push_back(head.view());
  }
  const PrincipalAxes axes = principal_axes(sets);
  put_axes(axes, kv_slot, plan.n_shown, out);
  put_projection(axes, k.view(), plan.positions, out.k_projection.sub(kv_slot));
  for (std::size_t h = 0; h < q.size(); ++h)
    put_projection(axes, q[h].view(), plan.positions, out.q_projection.sub(q_slots[h]));
}

constexpr double kNinety = 0.9;  // of the variance, for the number of axes that hold it

/// Axes needed for `share` of the variance; NaN if there is no variance.
double axes_for(std::span<const double> explained, double share) {
  double sum = 0.0;
  for (std::size_t i = 0; i < explained.size(); ++i) {
    sum += explained[i];
    if (sum >= share) return static_cast<double>(i + 1);
  }
  return std::isnan(sum) ? kNan : static_cast<double>(explained.size());
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
  const std::vector<Index> components = all_in(1, part.d_head + 1);
  write_head_axes(output, part);
  write_axis(output, "kv_head_of_q",
             mapped<Index>(part.q_heads, [&](Index head) { return head / part.group(); }), "1",
             "KV head of the query head");
  write_axis(output, "basis_head", plan.bases, "1",
             basis == GeometryBasis::head ? "query head of the basis" : "KV head of the basis");
  write_axis(output, "pos", plan.positions, "token", "position");
  write_axis(output, "component", components, "1", "principal axis");
  write_axis(output, "shown", std::span(components).first(static_cast<std::size_t>(plan.n_shown)),
             "1", "principal axis");
}

void add_plots(ResultWriter& output) {
  output.add_plot({"plot_explained",
                   "explained",
                   {"layer", "basis_head", "component"},
                   "Share of the variance per principal axis"});
  output.add_plot({"plot_queries",
                   "queries/projection",
                   {"layer", "q_head", "pos", "shown"},
                   "Queries along the principal axes"});
  output.add_plot({"plot_keys",
                   "keys/projection",
                   {"layer", "basis_head", "pos", "shown"},
                   "Keys along the principal axes"});
  output.add_plot({"plot_s_q", "queries/s_q", {"layer", "q_head", "pos"}, "S_q per query"});
  output.add_plot({"plot_query_clustering",
                   "clustering/queries",
                   {"layer", "q_head"},
                   "Mean cosine of the queries with their mean"});
  output.add_plot({"plot_key_clustering",
                   "clustering/keys",
                   {"layer", "kv_head"},
                   "Mean cosine of the keys with their mean"});
  output.add_plot({"plot_means",
                   "clustering/means",
                   {"layer", "q_head"},
                   "Cosine of the mean query and the mean key"});
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
