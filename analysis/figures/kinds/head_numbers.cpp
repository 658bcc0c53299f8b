// What every layer and query head does, as one layer x head map per measure.
#include <fmt/format.h>

#include <cmath>

#include "analysis/figures/head_measures.hpp"
#include "analysis/figures/maps.hpp"
#include "analysis/figures/selection.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"

namespace kvscope {

namespace {

plot::Figure make_head_numbers(const FigureInput& input) {
  const ResultView& result = *input.results[0];
  const FigureOptions& options = input.options;
  const auto layers = result.read("layer");
  const auto heads = result.read("q_head");
  std::vector<figures::HeadNumbers> shown;
  for (const std::string& name : figures::parse_words(options.metric))
    shown.push_back(figures::read_head_numbers(result, name, options.selector));
  if (shown.empty()) shown = figures::all_head_numbers(result, options.selector);

  plot::Figure figure;
  for (const figures::HeadNumbers& numbers : shown) {
    if (numbers.values.size() != layers.size() * heads.size())
      throw FormatError("{}: {} numbers of {} for {} x {} heads", result.name(),
                        numbers.values.size(), numbers.name, layers.size(), heads.size());
    plot::ColourAxis colour;
    if (numbers.is_share) {
      double most = 0.0;
      for (const double value : numbers.values) most = std::fmax(most, value);
      colour.axis.range = plot::Range{0.0, most > 0.0 ? most : 1.0};
    }
    figure.panels.push_back(figures::head_panel(layers, heads, numbers.values, colour));
    figure.panels.back().title = numbers.label;  // above the map, since beside it there is no room
  }
  figure.columns = figures::balanced_columns(figure.panels.size());
  figure.share_x = figure.share_y = true;
  figure.span = figure.panels.size() > 1 ? plot::Span::full : plot::Span::column;
  figure.caption.push_back(
      fmt::format("Means over {} query rows of {} tokens; losses are means over "
                  "the calls of a replay.",
                  result.read("row_pos").size(), result.summary().value("tokens", 0)));
  return figure;
}

}  // namespace

FigureKind figure_head_numbers() {
  return {
      .name = "head-numbers",
      .shows =
          "layer x head maps of distance, entropy, sink, local and retrieval share, and losses",
      .needs = "an analysis of heads",
      .command = "kvscope analyze heads trace.h5 --out heads.h5",
      .kinds = {"heads"},
      .options = {"metric", "selector"},
      .make = make_head_numbers,
  };
}

}  // namespace kvscope
