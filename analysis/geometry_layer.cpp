#include "analysis/geometry_layer.hpp"

#include <algorithm>

#include "analysis/statistics.hpp"
#include "core/tensor/principal_axes.hpp"

namespace kvscope {

namespace {

constexpr Index kShownAxes = 3;

double cosine(std::span<const double> a, std::span<const double> b, double eps) {
  return dot_of(a, b) / (std::max(norm_of(a), eps) * std::max(norm_of(b), eps));
}

/// out[i] = values[positions[i]], in the precision of the result.
void put_shown(std::span<const double> values, std::span<const Index> positions,
               std::span<float> out) {
  for (std::size_t i = 0; i < positions.size(); ++i) {
    out[i] = static_cast<float>(values[static_cast<std::size_t>(positions[i])]);
  }
}

void put_norms(TensorView<const float> rows, std::span<double> out) {
  for (Index i = 0; i < rows.dim(0); ++i) out[static_cast<std::size_t>(i)] = norm_of(rows.row(i));
}

/// Coordinates of the shown rows. out: [pos, shown]
void put_projection(const PrincipalAxes& axes, TensorView<const float> rows,
                    std::span<const Index> positions, TensorView<float> out) {
  for (std::size_t i = 0; i < positions.size(); ++i) {
    axes.project(rows.row(positions[i]), out.row(static_cast<Index>(i)));
  }
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
      n_shown(std::min(kShownAxes, info.d_head)) {}

GeometryLayer::GeometryLayer(const GeometryPlan& plan) {
  const auto n_q = static_cast<Index>(plan.part.q_heads.size());
  const auto n_kv = static_cast<Index>(plan.part.kv_heads.size());
  const auto n_bases = static_cast<Index>(plan.bases.size());
  const auto n_points = static_cast<Index>(plan.positions.size());
  const Index d = plan.part.d_head;
  variance = Tensor<double>({n_bases, d});
  explained = Tensor<double>({n_bases, d});
  center = Tensor<double>({n_bases, d});
  directions = Tensor<double>({n_bases, plan.n_shown, d});
  q_projection = Tensor<float>({n_q, n_points, plan.n_shown});
  k_projection = Tensor<float>({n_bases, n_points, plan.n_shown});
  for (Tensor<float>* t : {&s_q, &q_cos, &q_norm}) *t = Tensor<float>({n_q, n_points});
  for (Tensor<float>* t : {&k_cos, &k_norm}) *t = Tensor<float>({n_kv, n_points});
  q_clustering.resize(static_cast<std::size_t>(n_q));
  means.resize(static_cast<std::size_t>(n_q));
  k_clustering.resize(static_cast<std::size_t>(n_kv));
  all_q_norms = Tensor<double>({n_q, plan.part.n_tokens});
  all_k_norms = Tensor<double>({n_kv, plan.part.n_tokens});
  all_v_norms = Tensor<double>({n_kv, plan.part.n_tokens});
}

void geometry_group(const TraceSource& trace, const GeometryOptions& options,
                    const GeometryPlan& plan, Index layer, Index kv_slot, GeometryLayer& out) {
  const TraceInfo& part = plan.part;
  const TokenRange all{0, part.n_tokens};
  const QueryScoring scoring = options.scoring();
  const Index kv_head = part.kv_heads[static_cast<std::size_t>(kv_slot)];
  const std::vector<Index> q_slots = q_slots_of(part, kv_head);

  // the rows, and what they are compared with
  const Tensor<float> k = trace.read_k(layer, kv_head, all);
  std::vector<Tensor<float>> q;
  for (Index slot : q_slots) {
    q.push_back(trace.read_q(layer, part.q_heads[static_cast<std::size_t>(slot)], all));
  }
  put_norms(trace.read_v(layer, kv_head, all).view(), out.all_v_norms.view().row(kv_slot));
  const std::vector<double> mean_key = prompt_mean(part, k.view(), scoring);

  // keys: cosines and norms
  const std::vector<double> k_cosines = quoka_cosines(k.view(), mean_key, options.eps);
  out.k_clustering[static_cast<std::size_t>(kv_slot)] = mean(k_cosines);
  put_shown(k_cosines, plan.positions, out.k_cos.view().row(kv_slot));
  put_norms(k.view(), out.all_k_norms.view().row(kv_slot));
  put_shown(out.all_k_norms.view().row(kv_slot), plan.positions, out.k_norm.view().row(kv_slot));

  // queries: scores, cosines and norms
  for (std::size_t h = 0; h < q.size(); ++h) {
    const Index slot = q_slots[h];
    const auto rows = q[h].view();
    const std::vector<double> mean_query = prompt_mean(part, rows, scoring);
    const std::vector<double> cosines = quoka_cosines(rows, mean_query, options.eps);
    out.q_clustering[static_cast<std::size_t>(slot)] = mean(cosines);
    out.means[static_cast<std::size_t>(slot)] = cosine(mean_query, mean_key, options.eps);
    put_shown(query_scores(part, rows, options.span, scoring), plan.positions,
              out.s_q.view().row(slot));
    put_shown(cosines, plan.positions, out.q_cos.view().row(slot));
    put_norms(rows, out.all_q_norms.view().row(slot));
    put_shown(out.all_q_norms.view().row(slot), plan.positions, out.q_norm.view().row(slot));
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
  for (std::size_t h = 0; h < q.size(); ++h) {
    put_projection(axes, q[h].view(), plan.positions, out.q_projection.sub(q_slots[h]));
  }
}

}  // namespace kvscope
