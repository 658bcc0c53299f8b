// The serving ladder: every concession on a line of its own, alone and together with those above
// it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/figures/selection.hpp"
#include "analysis/figures/summary_rows.hpp"
#include "core/base/error.hpp"
#include "core/trace/result.hpp"

namespace kvscope {

namespace {

struct LadderValue {
  std::string metric;
  std::string title;
  plot::TickFormat format;
};

std::vector<LadderValue> ladder_values(const std::string& wanted) {
  const std::vector<LadderValue> all = {
      {"mass", "Kept attention", plot::TickFormat::percent},
      {"output_error", "Relative output error", plot::TickFormat::number},
      {"bytes", "Read for one query", plot::TickFormat::bytes}};
  if (wanted.empty()) return all;
  std::vector<LadderValue> some;
  for (const std::string& word : figures::parse_words(wanted)) {
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const LadderValue& one) { return one.metric == word; });
    if (found == all.end())
      throw ConfigError(
          fmt::format("metric: expected some of mass, output_error, bytes, found {}", word));
    some.push_back(*found);
  }
  return some;
}

plot::Figure make_ladder(const FigureInput& input) {
  const ResultView& result = *input.results[0];
  const nlohmann::ordered_json* rows = figures::list_at(result.summary(), "rows");
  if (rows == nullptr)
    throw FormatError(fmt::format("{}: the summary has no rungs", result.name()));
  const nlohmann::ordered_json& rungs = *rows;
  const std::size_t n = rungs.size();
  const std::vector<LadderValue> values = ladder_values(input.options.metric);

  plot::Figure figure;
  figure.columns = static_cast<int>(values.size());
  figure.share_y = true;
  figure.span = values.size() == 1 ? plot::Span::column : plot::Span::full;
  figure.legend = plot::LegendPlace::above;
  std::vector<plot::Tick> names;
  for (std::size_t r = 0; r < n; ++r)
    names.push_back({static_cast<double>(r), figures::text_at(rungs[r], "rung", "?")});
  for (const LadderValue& value : values) {
    plot::Panel panel;
    panel.x.label = value.title;
    panel.x.format = value.format;
    panel.y.range = plot::Range{-0.6, static_cast<double>(n) - 0.4};
    panel.y.reversed = true;
    panel.y.ticks = names;
    panel.y.has_names = true;
    panel.aspect = values.size() == 1 ? 1.5 : 1.9;
    plot::Scatter alone;
    alone.label = "this concession alone";
    alone.tone = {plot::Role::series, 0};
    alone.size = 1.3;
    plot::Line together;
    together.label = "with those above it";
    together.tone = {plot::Role::series, 1};
    double largest = 0.0;
    for (std::size_t r = 0; r < n; ++r) {
      const double own = figures::number_at(rungs[r], value.metric);
      const double all = figures::number_at(rungs[r], "together_" + value.metric);
      if (std::isfinite(own)) {
        alone.x.push_back(own);
        alone.y.push_back(static_cast<double>(r));
        largest = std::max(largest, own);
      }
      if (std::isfinite(all)) {
        together.x.push_back(all);
        together.y.push_back(static_cast<double>(r));
        largest = std::max(largest, all);
      }
    }
    if (value.metric == "mass") {
      panel.x.range = plot::Range{0.0, 1.0};
    } else if (value.metric == "bytes") {
      panel.x.scale = plot::ScaleKind::log2;  // a chunk divides them by its queries
    } else {
      panel.x.range = plot::Range{0.0, largest > 0.0 ? 1.08 * largest : 1.0};
    }
    const double base = figures::number_at(rungs[0], value.metric);
    if (std::isfinite(base))
      panel.marks.emplace_back(plot::Rule{plot::Rule::Kind::vertical, base, "as the method is"});
    if (!together.x.empty()) panel.marks.emplace_back(std::move(together));
    if (!alone.x.empty()) panel.marks.emplace_back(std::move(alone));
    for (std::size_t r = 0; r < n; ++r) {
      if (figures::text_at(rungs[r], "refused").empty()) continue;
      const double middle = (static_cast<double>(r) + 0.6) / (static_cast<double>(n) + 0.2);
      panel.marks.emplace_back(
          plot::Note{"not taken", 0.02, middle - 0.5 / static_cast<double>(n)});
    }
    figure.panels.push_back(std::move(panel));
  }
  const auto& config = result.info().config;
  figure.caption.push_back(fmt::format(
      "{}{}: each concession of an engine alone, and together with those above it (of each kind "
      "the last one); means over "
      "layers, query heads and the same queries. Bytes: scoring, and K and V of the kept keys, for "
      "all heads of a layer; a chunk's are divided among its queries, and its "
      "own keys are kept in addition to the budget.",
      figures::text_at(config, "selector", "?"),
      figures::text_at(config, "budget").empty() ? "" : " " + figures::text_at(config, "budget")));
  std::string refused;
  for (const auto& rung : rungs) {
    if (figures::text_at(rung, "refused").empty()) continue;
    refused += fmt::format("{}{} ({})", refused.empty() ? "" : "; ",
                           figures::text_at(rung, "rung", "?"), figures::text_at(rung, "refused"));
  }
  if (!refused.empty()) figure.caption.push_back(fmt::format("Not taken: {}.", refused));
  return figure;
}

}  // namespace

FigureKind figure_ladder() {
  return {
      .name = "ladder",
      .shows =
          "what each concession of a serving engine costs a method: kept attention, output error, "
          "bytes",
      .needs = "a serving ladder",
      .command = "kvscope ladder trace.h5 --selector quest --budget 256 --out ladder.h5",
      .kinds = {"ladder"},
      .options = {"metric"},
      .make = make_ladder,
  };
}

}  // namespace kvscope
