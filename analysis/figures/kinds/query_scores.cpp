// S_q against the largest attention weight: QuoKA's figure 2c for one head, and its correlation for
// every head.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/figures/maps.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/statistics.hpp"
#include "core/base/error.hpp"

namespace kvscope {

namespace {

/// Names of the arrays in the two results that hold them.
struct Names {
  std::string s_q;
  std::string correlation;
};

Names names_in(const ResultView& result) {
  if (result.info().kind == "quoka") return {"s_q_prompt", "correlation/pearson_log"};
  const bool has_it = result.find("correlation/prompt/pearson_log") != nullptr;
  return {"prompt/s_q", has_it ? "correlation/prompt/pearson_log" : "correlation/prompt/pearson"};
}

plot::Figure make_query_scores(const FigureInput& input) {
  const ResultView& result = *input.results[0];
  const Names names = names_in(result);
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
    throw FormatError(fmt::format("{}: {} positions for {} queries", result.name(),
                                  positions.size(), s_q.spec.shape[2]));
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

  plot::Scatter cloud;
  cloud.size = 0.55;
  cloud.opacity = 0.75;
  std::vector<double> logs;
  for (Index i = 0; i < s_q.spec.shape[2]; ++i) {
    const double pos = positions[static_cast<std::size_t>(i)];
    if (pos < 1.0 || !std::isfinite(log_weight(l, h, i))) continue;  // query 0 sees the sink alone
    cloud.x.push_back(s_q(l, h, i));
    cloud.y.push_back(std::exp(log_weight(l, h, i)));
    cloud.value.push_back(pos);
    logs.push_back(log_weight(l, h, i));
  }
  if (cloud.x.empty()) {
    throw ConfigError(fmt::format("{}: layer {}, query head {} has no finite weight", result.name(),
                                  layer, head));
  }

  plot::Figure figure;
  figure.columns = 2;
  figure.span = plot::Span::full;
  plot::Panel scatter;
  scatter.x.label = "$S_q$ = −cos($q$, $M_Q$)";
  scatter.y.label = "Largest attention weight";
  scatter.y.scale = plot::ScaleKind::log10;
  scatter.aspect = 0.8;
  scatter.colour = plot::ColourAxis{};
  scatter.colour->axis.label = "Query position";
  scatter.colour->axis.format = plot::TickFormat::tokens;
  const std::size_t n = cloud.x.size();
  const double r = pearson(cloud.x, logs);
  const double rho = spearman(cloud.x, logs);
  scatter.marks.emplace_back(std::move(cloud));
  scatter.title =
      fmt::format("Layer {}, query head {}: $r$ = {:.2f}, $ρ$ = {:.2f}", layer, head, r, rho);
  figure.panels.push_back(std::move(scatter));

  plot::ColourAxis colour;
  colour.map = plot::ColourMap::diverging;
  colour.axis.label = "Pearson $r$ of $S_q$ and log weight";
  colour.axis.range = plot::Range{-1.0, 1.0};
  colour.masked_label = "dense or undefined";
  plot::Panel map = figures::head_panel(
      layers, heads, std::vector<float>(correlation.values.begin(), correlation.values.end()),
      colour);
  map.title = "All heads";
  map.aspect = 0.8;
  plot::Boxes box;
  box.x = {{static_cast<double>(h), static_cast<double>(h) + 1.0}};
  box.y = {{static_cast<double>(l), static_cast<double>(l) + 1.0}};
  map.marks.emplace_back(std::move(box));
  figure.panels.push_back(std::move(map));
  figure.caption.push_back(fmt::format(
      "Left: n = {} queries; the sink (key 0) is left out of the largest weight, without "
      "renormalisation, and query 0 out of the points; r and ρ: Pearson and Spearman with the log "
      "of the weight. With more visible keys the largest weight falls, so position confounds both.",
      n));
  figure.caption.push_back(input.options.layers.empty() && input.options.heads.empty()
                               ? "The head shown is the one of largest correlation (boxed)."
                               : "The head shown is boxed on the right.");
  return figure;
}

}  // namespace

FigureKind figure_query_scores() {
  return {
      .name = "query-scores",
      .shows =
          "S_q against the largest attention weight, and their correlation in every head (QuoKA, "
          "figure 2c)",
      .needs = "an analysis of QuoKA or of its query selection",
      .command = "kvscope analyze quoka trace.h5 --out quoka.h5",
      .kinds = {"quoka|query-selection"},
      .options = {"layers", "heads"},
      .make = make_query_scores,
  };
}

}  // namespace kvscope
