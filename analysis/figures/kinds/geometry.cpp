// Queries and keys of one head along their principal axes, queries coloured by S_q: QuoKA's figure
// 2b.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/base/statistics.hpp"
#include "analysis/figures/maps.hpp"
#include "analysis/figures/query_panels.hpp"
#include "analysis/figures/selection.hpp"
#include "core/base/json.hpp"
#include "core/trace/result.hpp"

namespace kvscope {

namespace {

/// Mean and spread of a cloud along the first two axes.
struct CloudPlace {
  Mean x, y, squares;
  void add(double a, double b) {
    x.add(a);
    y.add(b);
    squares.add(a * a + b * b);
  }
  double spread() const {
    const double of_mean = x.value() * x.value() + y.value() * y.value();
    return std::sqrt(std::max(0.0, squares.value() - of_mean));
  }
};

/// How far apart the means of queries and keys of a head lie, in spreads of both clouds: what
/// QuoKA's figure shows where it is large.
double separation(const figures::ArrayData& queries, const figures::ArrayData& keys, Index layer,
                  Index head, Index basis) {
  CloudPlace q;
  CloudPlace k;
  for (Index i = 0; i < queries.spec.shape[2]; ++i)
    q.add(queries(layer, head, i, 0), queries(layer, head, i, 1));
  for (Index i = 0; i < keys.spec.shape[2]; ++i)
    k.add(keys(layer, basis, i, 0), keys(layer, basis, i, 1));
  const double apart = std::hypot(q.x.value() - k.x.value(), q.y.value() - k.y.value());
  return apart / std::max(1e-300, q.spread() + k.spread());
}

/// A layer and a query head, as places in the result's arrays.
struct HeadPlace {
  Index layer = 0, head = 0;
};

/// The head that is asked for; else, of those that are left, the one whose queries and keys lie
/// farthest apart. -1: not asked for. `basis_of`: of a query head.
template <class BasisOf>
HeadPlace farthest_apart(const figures::ArrayData& queries, const figures::ArrayData& keys,
                         HeadPlace asked, const BasisOf& basis_of) {
  HeadPlace found{std::max<Index>(0, asked.layer), std::max<Index>(0, asked.head)};
  double most = -1.0;
  for (Index i = 0; i < queries.spec.shape[0]; ++i) {
    for (Index j = 0; j < queries.spec.shape[1]; ++j) {
      if ((asked.layer >= 0 && i != asked.layer) || (asked.head >= 0 && j != asked.head)) continue;
      const double apart = separation(queries, keys, i, j, basis_of(j));
      if (!(apart > most)) continue;
      most = apart;
      found = {i, j};
    }
  }
  return found;
}

/// The slot of each query head's KV head. Results of before do not say it: there the groups have
/// to be whole.
std::vector<Index> kv_slots(const ResultView& result, std::span<const double> q_heads,
                            std::span<const double> kv_heads) {
  std::vector<Index> slots;
  if (result.find("kv_head_of_q") != nullptr) {
    for (const double kv_head : result.read("kv_head_of_q"))
      slots.push_back(
          figures::slot_of(kv_heads, static_cast<Index>(kv_head), "KV head", result.name()));
    return slots;
  }
  const std::size_t group = q_heads.size() / std::max<std::size_t>(1, kv_heads.size());
  for (std::size_t h = 0; group > 0 && h < group * kv_heads.size(); ++h) {
    const double expected =
        kv_heads[h / group] * static_cast<double>(group) + static_cast<double>(h % group);
    if (q_heads[h] == expected) slots.push_back(static_cast<Index>(h / group));
  }
  if (slots.size() != q_heads.size())
    throw FormatError("{}: does not say which KV head each query head reads", result.name());
  return slots;
}

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

  const std::vector<Index> kv_of_q = kv_slots(result, q_heads, kv_heads);
  const bool by_head = basis_heads.size() == q_heads.size() && q_heads.size() != kv_heads.size();
  const auto basis_of = [&](Index h) { return by_head ? h : kv_of_q[static_cast<std::size_t>(h)]; };

  const Index wanted_layer = figures::one_of(input.options.layers, "layers", -1);
  const Index wanted_head = figures::one_of(input.options.heads, "heads", -1);
  HeadPlace asked{-1, -1};
  if (wanted_layer >= 0)
    asked.layer = figures::slot_of(layers, wanted_layer, "layer", result.name());
  if (wanted_head >= 0)
    asked.head = figures::slot_of(q_heads, wanted_head, "query head", result.name());
  const HeadPlace shown = farthest_apart(queries, keys, asked, basis_of);
  const Index l = shown.layer;
  const Index h = shown.head;
  const auto layer = static_cast<Index>(layers[static_cast<std::size_t>(l)]);
  const auto head = static_cast<Index>(q_heads[static_cast<std::size_t>(h)]);
  const Index basis = basis_of(h);

  const auto span = text_at(result.info().config, "span") == enum_name(QuerySpan::chunk)
                        ? QuerySpan::chunk
                        : QuerySpan::prompt;
  const auto axis_label = [&](Index component) {
    return figures::component_label(static_cast<std::size_t>(component),
                                    explained(l, basis, component));
  };
  plot::Panel panel{
      .x = {.label = axis_label(0)},
      .y = {.label = axis_label(1)},
      .colour = plot::ColourAxis{.axis = {.label = "Queries: " + figures::s_q_label(span)}},
      .aspect = 0.85,
      .legend = plot::LegendPlace::above};
  plot::Scatter key_cloud{
      .label = "keys", .tone = {plot::Role::neutral, 0}, .size = 0.5, .opacity = 0.6};
  plot::Scatter query_cloud{.size = 0.5, .opacity = 0.85};
  double mean_x = 0.0;
  double mean_y = 0.0;
  for (Index i = 0; i < keys.spec.shape[2]; ++i)
    key_cloud.add(keys(l, basis, i, 0), keys(l, basis, i, 1));
  for (Index i = 0; i < queries.spec.shape[2]; ++i) {
    query_cloud.add(queries(l, h, i, 0), queries(l, h, i, 1));
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
      layer, head, kv_heads[static_cast<std::size_t>(kv_of_q[static_cast<std::size_t>(h)])], n,
      n_keys, text_at(result.info().config, "basis", "joint")));
  if (wanted_layer < 0 && wanted_head < 0)
    figure.caption.emplace_back(
        "The head shown is the one whose mean query and mean key lie "
        "farthest apart, in spreads of both clouds.");
  return figure;
}

}  // namespace

FigureKind figure_geometry() {
  return {
      .name = "geometry",
      .shows =
          "queries and keys along their principal axes, queries coloured by S_q (QuoKA, figure 2b)",
      .needs = "an analysis of the geometry of q and k",
      .command = "kvscope analyze geometry trace.h5 --out geometry.h5",
      .kinds = {"geometry"},
      .options = {"layers", "heads"},
      .make = make_geometry,
  };
}

}  // namespace kvscope
