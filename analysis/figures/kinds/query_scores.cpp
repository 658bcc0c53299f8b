// S_q against the largest attention weight: QuoKA's figure 2c for one head, and its correlation for
// every head.
#include <fmt/format.h>

#include <cmath>

#include "analysis/base/statistics.hpp"
#include "analysis/figures/maps.hpp"
#include "analysis/figures/query_panels.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "core/base/error.hpp"
#include "core/trace/result.hpp"

namespace kvscope {

namespace {

/// Names of the arrays in the two results that hold them.
struct Names {
  std::string s_q;
  std::string correlation;
};

Names names_in(const ResultView& result, QuerySpan span) {
  const std::string mean(enum_name(span));
  if (result.info().kind == "quoka" && span == QuerySpan::chunk)
    return {"s_q", "correlation/chunk_pearson_log"};
  if (result.info().kind == "quoka") return {"s_q_prompt", "correlation/pearson_log"};
  const bool has_it = result.find("correlation/prompt/pearson_log") != nullptr;
  return {mean + "/s_q",
          fmt::format("correlation/{}/{}", mean, has_it ? "pearson_log" : "pearson")};
}

plot::Figure make_query_scores(const FigureInput& input) {
  const ResultView& result = *input.results[0];
  const std::string metric = input.options.metric.empty() ? "prompt" : input.options.metric;
  const auto span = static_cast<QuerySpan>(figures::metric_slot(metric, {"prompt", "chunk"}));
  const Names names = names_in(result, span);
  const figures::ArrayData s_q(result, names.s_q);
  const figures::ArrayData log_weight(result, "log_max_weight");
  const figures::ArrayData correlation(result, names.correlation);
  const auto layers = result.axis(names.s_q, 0);
  const auto heads = result.axis(names.s_q, 1);
  const auto found = result.find("pos");
  const auto positions = found != nullptr ? result.read("pos") : result.axis(names.s_q, 2);

  const auto n_layers = static_cast<Index>(layers.size());
  correlation.require_shape({n_layers, static_cast<Index>(heads.size())});
  log_weight.require_shape(s_q.spec.shape);
  if (positions.size() != static_cast<std::size_t>(s_q.spec.shape[2])) {
    throw FormatError("{}: {} positions for {} queries", result.name(), positions.size(),
                      s_q.spec.shape[2]);
  }

  // the head of largest correlation, unless asked for another
  std::size_t best = 0;
  for (std::size_t i = 0; i < correlation.values.size(); ++i) {
    const double now = correlation.values[i];
    const double before = correlation.values[best];
    if (!(before >= now)) best = std::isnan(now) ? best : i;
  }
  const auto n_heads = static_cast<Index>(heads.size());
  const Index layer =
      figures::one_of(input.options.layers, "layers",
                      static_cast<Index>(layers[best / static_cast<std::size_t>(n_heads)]));
  const Index head =
      figures::one_of(input.options.heads, "heads",
                      static_cast<Index>(heads[best % static_cast<std::size_t>(n_heads)]));
  const Index l = figures::slot_of(layers, layer, "layer", result.name());
  const Index h = figures::slot_of(heads, head, "query head", result.name());

  figures::QueryPoints points;
  std::vector<double> logs;
  for (Index i = 0; i < s_q.spec.shape[2]; ++i) {
    const double pos = positions[static_cast<std::size_t>(i)];
    if (pos < 1.0 || !std::isfinite(log_weight(l, h, i))) continue;  // query 0 sees the sink alone
    if (!std::isfinite(s_q(l, h, i))) continue;                      // alone in its chunk
    points.s_q.push_back(s_q(l, h, i));
    points.weight.push_back(std::exp(log_weight(l, h, i)));
    points.pos.push_back(pos);
    points.row.push_back(
        static_cast<std::size_t>((l * n_heads + h) * static_cast<Index>(positions.size()) + i));
    logs.push_back(log_weight(l, h, i));
  }
  if (points.s_q.empty()) {
    throw ConfigError("{}: layer {}, query head {} has no finite weight", result.name(), layer,
                      head);
  }

  plot::Figure figure = figures::side_by_side(
      figures::query_score_panel(points, span, layer, head, pearson(points.s_q, logs),
                                 spearman(points.s_q, logs)),
      figures::correlation_panel(
          layers, heads, std::vector<float>(correlation.values.begin(), correlation.values.end()),
          "Pearson $r$ of $S_q$ and log weight", "dense or undefined", l, h));
  figure.caption.push_back(
      "Queries: " +
      figures::query_score_caption(points.s_q.size(),
                                   "the sink (key 0) is left out of the largest weight, without "
                                   "renormalisation, and query 0 out of the points"));
  figure.caption.push_back(input.options.layers.empty() && input.options.heads.empty()
                               ? "The head shown is the one of largest correlation (boxed)."
                               : "The head shown is boxed in the map of heads.");
  return figure;
}

}  // namespace

FigureKind figure_query_scores() {
  return {
      .name = "query-scores",
      .shows =
          "S_q against the largest attention weight, and their correlation in every head "
          "(QuoKA, figure 2c)",
      .needs = "an analysis of QuoKA or of its query selection",
      .command = "kvscope analyze quoka trace.h5 --out quoka.h5",
      .kinds = {"quoka|query-selection"},
      .options = {"metric", "layers", "heads"},
      .make = make_query_scores,
  };
}

}  // namespace kvscope
