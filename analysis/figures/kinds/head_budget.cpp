// How many keys each head needs: a map, and the sorted profile that one budget for all ignores.
#include "analysis/figures/kit.hpp"

namespace kvscope {

namespace {

plot::Line profile(std::vector<double> values, std::string label, int slot) {
  std::erase_if(values, [](double v) { return !std::isfinite(v); });
  std::ranges::sort(values, std::greater<>());
  plot::Line line;
  line.label = std::move(label);
  line.tone = {plot::Role::series, slot};
  line.markers = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    line.x.push_back(static_cast<double>(i + 1));
    line.y.push_back(values[i]);
  }
  return line;
}

plot::Figure make_head_budget(const FigureInput& input) {
  const ResultView& result = *input.results[0];
  const auto mean = result.read("budget_mean");
  const auto p95 = result.read("budget_p95");
  const auto layers = result.axis("budget_mean", 0);
  const auto heads = result.axis("budget_mean", 1);
  double target = 0.99;
  const auto& summary = result.summary();
  if (summary.contains("totals")) target = summary["totals"].value("target_mass", target);

  plot::Figure figure;
  figure.columns = 2;
  figure.span = plot::Span::full;
  plot::ColourAxis colour;
  colour.axis.label = "Keys needed (mean)";
  colour.axis.scale = plot::ScaleKind::log2;
  colour.axis.format = plot::TickFormat::tokens;
  plot::Panel map = figures::head_panel(layers, heads, {mean.begin(), mean.end()}, colour);
  map.title = fmt::format("Keys for {:g}% of the attention", 100.0 * target);
  map.aspect = 0.8;
  figure.panels.push_back(std::move(map));

  plot::Panel sorted;
  sorted.title = "Sorted over heads";
  sorted.x.label = "Query head, by its need";
  sorted.y.label = "Keys needed";
  sorted.y.scale = plot::ScaleKind::log2;
  sorted.y.format = plot::TickFormat::tokens;
  sorted.x.whole_numbers = true;
  sorted.aspect = 0.8;
  sorted.legend = plot::LegendPlace::inside;
  plot::Line of_mean = profile(mean, "mean over rows", 0);
  sorted.x.range = plot::Range{1.0, std::max(2.0, static_cast<double>(of_mean.x.size()))};
  sorted.marks.emplace_back(std::move(of_mean));
  sorted.marks.emplace_back(profile(p95, "95th percentile of rows", 1));
  if (summary.contains("totals") && summary["totals"].contains("budget_shared") &&
      summary["totals"]["budget_shared"].is_number()) {
    sorted.marks.emplace_back(plot::Rule{plot::Rule::Kind::horizontal,
                                         summary["totals"]["budget_shared"].get<double>(),
                                         "one budget for all"});
  }
  figure.panels.push_back(std::move(sorted));
  figure.caption.push_back(
      fmt::format("The smallest number of keys that hold {:g}% of a row's attention, chosen with "
                  "hindsight (oracle top-k), over n = {} query heads.",
                  100.0 * target, mean.size()));
  figure.caption.emplace_back(
      "One budget for all: so many keys in every row and head hold the target on average; heads "
      "above the line keep less than it, heads below it more.");
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
