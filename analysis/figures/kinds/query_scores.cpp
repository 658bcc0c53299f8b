// S_q against the largest attention weight: QuoKA's figure 2c for one head, and its correlation for
// every head.
#include <fmt/format.h>

#include <cmath>
#include <span>

#include "analysis/base/statistics.hpp"
#include "analysis/figures/maps.hpp"
#include "analysis/figures/query_panels.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
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

/// Queries of one head, coloured by position; the numbers are Pearson's and Spearman's of S_q and
/// the log of the weight.
plot::Panel scores_panel(plot::Scatter points, const std::vector<double>& logs, QuerySpan span,
                         Index layer, Index head) {
  plot::Panel panel{
      // spaces that do not break: a line ends before the numbers, not inside of one
      .title = fmt::format(
          "Layer {}, query head {}: $r$\u00A0=\u00A0{:.2f},\u00A0$ρ$\u00A0=\u00A0{:.2f}", layer,
          head, pearson(points.x, logs), spearman(points.x, logs)),
      .x = {.label = figures::s_q_label(span)},
      .y = {.label = "Largest attention weight", .scale = plot::ScaleKind::log10},
      .colour =
          plot::ColourAxis{.axis = {.label = "Query position", .format = plot::TickFormat::tokens}},
      .aspect = 0.8};
  panel.marks.emplace_back(std::move(points));
  return panel;
}

/// Layer x head, the one at (layer_slot, head_slot) boxed.
plot::Panel correlation_panel(std::span<const double> layers, std::span<const double> heads,
                              std::span<const double> values, Index layer_slot, Index head_slot) {
  plot::Panel panel = figures::head_panel(
      layers, heads, values,
      {.axis = {.label = "Pearson $r$ of $S_q$ and log weight", .range = plot::Range{-1.0, 1.0}},
       .map = plot::ColourMap::diverging,
       .masked_label = "dense or undefined"});
  panel.title = layers.size() == 1 ? "Heads of the layer" : "All heads";
  panel.aspect = 0.8;
  const auto cell = [](Index slot) {
    return plot::Range{static_cast<double>(slot), static_cast<double>(slot) + 1.0};
  };
  panel.marks.emplace_back(plot::Boxes{.x = {cell(head_slot)}, .y = {cell(layer_slot)}});
  return panel;
}

/// "; the sink (key 0) is left out of the largest weight, ..."; empty where no key is.
std::string left_out_keys(const ResultInfo& info) {
  const bool is_quoka = info.kind == "quoka";  // which leaves out the sink, and says no more of it
  const double first = is_quoka ? 1.0 : number_at(info.config, "skip");
  const double last = is_quoka ? 0.0 : number_at(info.config, "skip_recent");
  std::vector<std::string> parts;
  if (first == 1.0) parts.emplace_back("the sink (key 0)");
  if (first > 1.0) parts.push_back(fmt::format("the first {:g} keys", first));
  if (last > 0.0) parts.push_back(fmt::format("the last {:g} visible keys", last));
  if (parts.empty()) return "";
  return fmt::format("; left out of the largest weight, without renormalisation: {}",
                     fmt::join(parts, ", "));
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

  plot::Scatter points{.size = 0.55, .opacity = 0.75};
  std::vector<double> logs;
  for (Index i = 0; i < s_q.spec.shape[2]; ++i) {
    const double pos = positions[static_cast<std::size_t>(i)];
    if (pos < 1.0 || !std::isfinite(log_weight(l, h, i))) continue;  // query 0 sees the sink alone
    if (!std::isfinite(s_q(l, h, i))) continue;                      // alone in its chunk
    points.add(
        s_q(l, h, i), std::exp(log_weight(l, h, i)),
        static_cast<std::size_t>((l * n_heads + h) * static_cast<Index>(positions.size()) + i));
    points.value.push_back(pos);
    logs.push_back(log_weight(l, h, i));
  }
  if (points.x.empty()) {
    throw ConfigError("{}: layer {}, query head {} has no finite weight", result.name(), layer,
                      head);
  }
  const std::size_t n = points.x.size();
  plot::Figure figure =
      figures::side_by_side(scores_panel(std::move(points), logs, span, layer, head),
                            correlation_panel(layers, heads, correlation.values, l, h));
  figure.caption.push_back(fmt::format(
      "Queries: n = {} queries{}; query 0 is no point; r and ρ: Pearson and Spearman with the log "
      "of the weight. With more visible keys the largest weight falls, so position confounds both.",
      n, left_out_keys(result.info())));
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
