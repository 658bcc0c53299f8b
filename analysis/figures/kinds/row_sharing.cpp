// How much the rows of a call share the keys that they keep, by layer: a line for each method.
#include <fmt/format.h>

#include "analysis/figures/maps.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"

namespace kvscope {

namespace {

plot::Figure make_row_sharing(const FigureInput& input) {
  const ResultView& result = *input.results[0];
  const std::string metric = input.options.metric.empty() ? "row_share" : input.options.metric;
  const std::size_t which = figures::metric_slot(metric, {"row_share", "jaccard", "call_keys"});
  const figures::ArrayData numbers(result, metric);
  const auto layers = result.axis(metric, 0);
  std::vector<std::string> methods;
  const Json* const pairs = list_at(result.summary(), "pairs");
  if (pairs == nullptr) throw FormatError("{}: the summary has no pairs", result.name());
  for (const Json& pair : *pairs) methods.push_back(text_at(pair, "method"));
  const figures::MethodTones tones(methods);
  plot::Panel panel{
      .x = {.label = "Layer", .whole_numbers = true},
      .y = {.label =
                std::array{"Kept by a row / read for the call",
                           "Kept by all rows / read for the call", "Keys read for a call"}[which],
            .format = which < 2 ? plot::TickFormat::percent : plot::TickFormat::tokens}};
  for (std::size_t p = 0; p < methods.size(); ++p) {
    plot::Line line{.label = figures::method_label(methods[p]), .tone = tones.of(methods[p])};
    for (std::size_t l = 0; l < layers.size(); ++l) {
      std::vector<double> heads;
      for (Index h = 0; h < numbers.spec.shape[1]; ++h) heads.push_back(numbers(l, h, p));
      const figures::Summary of_heads = figures::summarize(heads, input.options.band);
      if (of_heads.n > 0) line.add(layers[l], of_heads.middle, {of_heads.low, of_heads.high});
    }
    if (!line.x.empty()) panel.marks.emplace_back(std::move(line));
  }
  if (panel.marks.empty()) figures::fail_empty(result.name(), "no method chooses keys");
  if (which < 2) panel.y.range = plot::Range{0.0, 1.02};
  plot::Figure figure{.panels = {panel}, .legend = plot::LegendPlace::above};
  const Json& config = result.info().config;
  const std::string phase = text_at(config, "phase");
  figure.caption.push_back(fmt::format(
      "Keys before each call ({}, at most {:g} rows); lines and bands over n = {} heads, of means "
      "over calls.",
      phase, number_at(config, phase == "verify" ? "drafts" : "chunk"), numbers.spec.shape[1]));
  return figure;
}

}  // namespace

FigureKind figure_row_sharing() {
  return {
      .name = "row-sharing",
      .shows = "how much the rows of a call share the keys that they keep, by layer",
      .needs = "an analysis of row sharing",
      .command = "kvscope analyze row-sharing trace.h5 --out rows.h5",
      .kinds = {"row-sharing"},
      .options = {"metric", "band"},
      .make = make_row_sharing,
  };
}

}  // namespace kvscope
