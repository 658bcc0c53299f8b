// How many keys each head needs: a map, and the sorted profile that one budget for all ignores.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/base/statistics.hpp"
#include "analysis/figures/maps.hpp"
#include "analysis/figures/spec.hpp"
#include "core/base/json.hpp"

namespace kvscope {

namespace {

plot::Line profile(std::vector<double> values, std::string label, int slot) {
  std::erase_if(values, [](double v) { return !std::isfinite(v); });
  std::ranges::sort(values, std::greater<>());
  plot::Line line{.label = std::move(label), .tone = {plot::Role::series, slot}, .markers = false};
  for (const double value : values) line.add(static_cast<double>(line.x.size() + 1), value);
  return line;
}

plot::Figure make_head_budget(const FigureInput& input) {
  const ResultView& result = *input.results[0];
  const auto mean = result.read("budget_mean");
  const auto p95 = result.read("budget_p95");
  const auto layers = result.axis("budget_mean", 0);
  const auto heads = result.axis("budget_mean", 1);
  const Json totals = totals_of(result.summary());
  const double target = totals.value("target_mass", 0.99);
  const plot::Axis keys{
      .label = "Keys needed", .scale = plot::ScaleKind::log2, .format = plot::TickFormat::tokens};

  plot::Panel map = figures::head_panel(layers, heads, mean, {.axis = keys});
  map.colour->axis.label += " (mean)";
  map.title = fmt::format("Keys for {:g}% of the attention", 100.0 * target);
  map.aspect = 0.8;

  plot::Panel sorted{.title = "Sorted over heads",
                     .x = {.label = "Query head, by its need", .whole_numbers = true},
                     .y = keys,
                     .aspect = 0.8,
                     .legend = plot::LegendPlace::inside};
  plot::Line of_mean = profile(mean, "mean over rows", 0);
  sorted.x.range = plot::Range{1.0, std::max(2.0, static_cast<double>(of_mean.x.size()))};
  sorted.marks.emplace_back(std::move(of_mean));
  sorted.marks.emplace_back(profile(p95, "95th percentile of rows", 1));
  if (const double shared = number_at(totals, "budget_shared"); std::isfinite(shared))
    sorted.marks.emplace_back(
        plot::Rule{plot::Rule::Kind::horizontal, shared, "one budget for all"});
  plot::Figure figure = figures::side_by_side(std::move(map), std::move(sorted));
  figure.caption.push_back(
      fmt::format("The smallest number of keys that hold {:g}% of a row's attention, chosen with "
                  "hindsight (oracle top-k), over n = {} query heads.",
                  100.0 * target, mean.size()));
  figure.caption.emplace_back(
      "One budget for all: so many keys in every row and head hold the target on average, less of "
      "it in some heads and more in others.");
  if (const double n = number_at(totals, "windowed_layers"); n > 0.0)
    figure.caption.push_back(fmt::format(
        "{:g} layers with a sliding window are in the map and the lines, not in the one budget.",
        n));
  return figure;
}

}  // namespace

FigureKind figure_head_budget() {
  return {
      .name = "head-budget",
      .shows =
          "how many keys each query head needs for a share of its attention, and the sorted "
          "profile",
      .needs = "a coverage analysis",
      .command = "kvscope analyze coverage trace.h5 --target-mass 0.99 --out coverage.h5",
      .kinds = {"coverage"},
      .make = make_head_budget,
  };
}

}  // namespace kvscope
