// The serving ladder: every restriction on a line of its own, alone and together with those above
// it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/base/mapped.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/trace/result.hpp"

namespace kvscope {

namespace {

struct Quantity {
  std::string name;  // of the option `metric`, and in the rows
  std::string label;
  plot::TickFormat format;
  plot::ScaleKind scale;
};

const std::vector<Quantity>& quantities() {
  static const std::vector<Quantity> all = {
      {"mass", "Kept attention", plot::TickFormat::percent, plot::ScaleKind::linear},
      {"output_error", "Relative output error", plot::TickFormat::number, plot::ScaleKind::linear},
      // a chunk divides them by its queries
      {"bytes", "Read for one query", plot::TickFormat::bytes, plot::ScaleKind::log2}};
  return all;
}

/// A number of every row that has it, at the row's place.
struct Points {
  std::vector<double> x, y;
};

Points points_of(const Json& rows, const std::string& name) {
  Points points;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double value = number_at(rows[i], name);
    if (!std::isfinite(value)) continue;
    points.x.push_back(value);
    points.y.push_back(static_cast<double>(i));
  }
  return points;
}

plot::Panel panel_of(const Json& rows, const Quantity& shown, const ResultView& result) {
  plot::Panel panel;
  panel.x.label = shown.label;
  panel.x.format = shown.format;
  panel.x.scale = shown.scale;
  if (const double first = number_at(rows[0], shown.name); std::isfinite(first))
    panel.marks.emplace_back(plot::Rule{plot::Rule::Kind::vertical, first, "as the method is"});
  Points together = points_of(rows, "together_" + shown.name);
  Points alone = points_of(rows, shown.name);
  if (together.x.empty() && alone.x.empty())
    throw ConfigError("{}: no method could take any case", result.name());
  double largest = 0.0;
  for (const Points* points : {&together, &alone})
    for (const double x : points->x) largest = std::max(largest, x);
  if (shown.name == "mass") panel.x.range = plot::Range{0.0, 1.0};
  if (shown.name == "output_error")
    panel.x.range = plot::Range{0.0, largest > 0.0 ? 1.08 * largest : 1.0};
  if (!together.x.empty()) {
    panel.marks.emplace_back(plot::Line{"with those above it",
                                        {plot::Role::series, 1},
                                        std::move(together.x),
                                        std::move(together.y),
                                        {},
                                        {}});
  }
  if (!alone.x.empty()) {
    panel.marks.emplace_back(plot::Scatter{"this restriction alone",
                                           {plot::Role::series, 0},
                                           std::move(alone.x),
                                           std::move(alone.y),
                                           {},
                                           1.3});
  }
  return panel;
}

plot::Figure make_ladder(const FigureInput& input) {
  const ResultView& result = *input.results[0];
  const Json* rows = list_at(result.summary(), "rows");
  if (rows == nullptr || rows->empty())
    throw FormatError("{}: the summary has no rows", result.name());
  const auto metrics = mapped<std::string>(quantities(), &Quantity::name);
  std::vector<std::string> wanted = figures::parse_words(input.options.metric);
  if (wanted.empty()) wanted = metrics;
  figures::LeftOut refused;
  std::vector<std::string> names;
  for (const Json& row : *rows) {
    names.push_back(text_at(row, "rung", "?"));
    const std::string why = text_at(row, "refused");
    if (why.empty()) continue;
    refused.add(names.back(), why);
    names.back() += " (not taken)";
  }
  plot::Figure figure = figures::panels_in_rows(wanted.size(), static_cast<int>(wanted.size()));
  figure.share_y = true;
  for (const std::string& word : wanted) {
    const Quantity& shown = quantities()[figures::metric_slot(word, metrics)];
    figure.panels.push_back(panel_of(*rows, shown, result));
    figure.panels.back().y = figures::names_axis(names);
    figure.panels.back().aspect = wanted.size() == 1 ? 1.5 : 1.9;
  }
  const Json& config = result.info().config;
  const std::string budget = text_at(config, "budget");
  const double n_queries = number_at(totals_of(result.summary()), "queries");
  figure.caption.push_back(fmt::format(
      "{}{}: each restriction of an engine alone, and together with those above it (of each kind "
      "the last one); means over layers, query heads and the same {}queries. Bytes: scoring, and K "
      "and V of the kept keys, for all heads of a layer; a chunk's are divided among its queries, "
      "and its own keys are kept in addition to the budget.",
      text_at(config, "selector", "?"), budget.empty() ? "" : " " + budget,
      std::isnan(n_queries) ? "" : fmt::format("{} ", n_queries)));
  refused.say("Not taken", figure.caption);
  return figure;
}

}  // namespace

FigureKind figure_ladder() {
  return {
      .name = "ladder",
      .shows =
          "what each restriction of a serving engine costs a method: kept attention, output "
          "error, bytes",
      .needs = "a serving ladder",
      .command = "kvscope ladder trace.h5 --selector quest --budget 256 --out ladder.h5",
      .kinds = {"ladder"},
      .options = {"metric"},
      .make = make_ladder,
  };
}

}  // namespace kvscope
