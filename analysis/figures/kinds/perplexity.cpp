// Perplexity of everything read so far, by position: SpecAttn's figure 5, Quest's figure on PG19.
//
// Arrays: curve/log_perplexity [pair, position] with curve/position, and the table's columns
// selector, budget_kind and budget, whose row i belongs to pair i. As a table: columns selector,
// position, log_perplexity (the mean loss in nats up to this position), budget optional.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/figures/beyond_oracle.hpp"
#include "analysis/figures/method_rows.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "analysis/plot/scale.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kMostPoints = 40;

plot::Figure make_perplexity(const FigureInput& input) {
  const ResultView& result = *input.results[0];
  Table table = rows_of(result);
  if (result.find("curve/log_perplexity") != nullptr)
    table = figures::rows_of_array(result, "curve/log_perplexity", "log_perplexity",
                                   {{"position", "curve/position"}}, table, 1);
  std::vector<figures::MethodRows> curves =
      figures::method_rows(table, input.options, figures::BudgetInLabel::always);
  if (curves.empty()) figures::fail_empty(table.name(), "no curve is left");
  // The reference is drawn over those that lie on it.
  std::stable_partition(curves.begin(), curves.end(),
                        [](const figures::MethodRows& one) { return one.selector != "full"; });
  plot::Panel panel{.x = {.label = "Position (tokens)"},
                    .y = {.label = "Cumulative perplexity", .scale = plot::ScaleKind::log10},
                    .aspect = 0.6,
                    .legend = plot::LegendPlace::above};
  const figures::RowNumbers losses = figures::numbers_with_ends(table, "log_perplexity");
  plot::Extent extent(plot::ScaleKind::log10);
  std::size_t largest_stride = 1;
  std::vector<figures::LiveResult> ends;
  std::vector<std::vector<std::size_t>> groups;
  std::vector<std::string> lacking;
  const auto positions = table.numbers("position");
  for (const figures::MethodRows& curve :
       figures::at_common_places(table, curves, positions, losses, lacking)) {
    plot::Line line{.label = curve.label, .tone = curve.tone};
    const auto points = figures::points_of(curve, positions, losses);
    // A mean over all tokens so far: few points say it, and dashes and markers can be seen. The
    // first tokens of a curve are means over few and would set the scale.
    const std::size_t n = points.size();
    const std::size_t stride = std::max<std::size_t>(1, (n + kMostPoints - 1) / kMostPoints);
    largest_stride = std::max(largest_stride, stride);
    std::size_t place = 0;
    for (const auto& [position, loss] : points) {
      groups.push_back(loss.rows);
      if (place++ % stride != (n - 1) % stride) continue;
      line.add(position, std::exp(loss.value()));
      if (n <= 200 || place > n / 25) extent.add(line.y.back());
    }
    const std::size_t last = curve.rows.back();
    ends.push_back({curve.selector, figures::budget_label(table, last), line.y.back(),
                    table.has("kept") ? table.numbers("kept")[last] : kNan});
    panel.marks.emplace_back(std::move(line));
  }
  if (!extent.empty())
    panel.y.range = plot::padded(extent.range(), plot::ScaleKind::log10, /*keep_zero=*/false);
  plot::Figure figure;
  figure.panels.push_back(std::move(panel));
  figure.caption.emplace_back(
      "Perplexity up to a position: the exponential of the mean loss of all tokens scored so far. "
      "The first 4% of a long curve average over few tokens and may leave the panel.");
  if (largest_stride > 1) {
    figure.caption.push_back(
        fmt::format("Drawn at every {}th position, and at the last.", largest_stride));
  }
  figure.caption.insert(figure.caption.end(), lacking.begin(), lacking.end());
  figures::say_means(table, groups, figure.caption);
  figures::say_match(table, curves, figure.caption);
  figures::say_beyond_oracles(ends, /*is_better_low=*/true, figure.caption);
  return figure;
}

}  // namespace

FigureKind figure_perplexity() {
  return {
      .name = "perplexity",
      .shows = "cumulative perplexity by position under each method (SpecAttn, figure 5)",
      .needs = "a perplexity simulation, or a table with selector, position and log_perplexity",
      .command = "kvscope simulate perplexity --selector quest,full --budget 256 --out ppl.h5",
      .kinds = {"simulate-perplexity|table"},
      .options = {"selector"},
      .make = make_perplexity,
  };
}

}  // namespace kvscope
