#include "analysis/kinds/geometry_layer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/base/measure_layers.hpp"
#include "analysis/base/statistics.hpp"
#include "core/base/nan.hpp"
#include "core/tensor/principal_axes.hpp"

namespace kvscope {

namespace {

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

}  // namespace

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

}  // namespace kvscope
