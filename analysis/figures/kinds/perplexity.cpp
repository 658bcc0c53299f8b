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

/// Of a mean over all tokens so far few points say it, and dashes and markers can be seen: every
/// n-th row of a method, and its last.
std::size_t thin_out(figures::MethodRows& method) {
  constexpr std::size_t kMostPoints = 40;
  const std::size_t n = method.rows.size();
  const std::size_t stride = std::max<std::size_t>(1, (n + kMostPoints - 1) / kMostPoints);
  std::vector<std::size_t> kept;
  for (std::size_t i = (n - 1) % stride; i < n; i += stride) kept.push_back(method.rows[i]);
  method.rows = std::move(kept);
  return stride;
}

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
  figures::RowNumbers perplexity = figures::numbers_with_ends(table, "log_perplexity");
  for (double& loss : perplexity.values) loss = std::exp(loss);
  plot::Extent extent(plot::ScaleKind::log10);
  std::size_t largest_stride = 1;
  std::vector<figures::LiveResult> ends;
  for (figures::MethodRows& curve : curves) {
    const std::size_t n = curve.rows.size();
    const std::size_t begin = n <= 200 ? curve.rows.front() : curve.rows[n / 25];
    const std::size_t last = curve.rows.back();
    ends.push_back({curve.selector, figures::budget_label(table, last), perplexity.values[last],
                    table.has("kept") ? table.numbers("kept")[last] : kNan});
    largest_stride = std::max(largest_stride, thin_out(curve));
    // The first tokens of a long curve are means over few and would set the scale.
    for (const std::size_t row : curve.rows) {
      if (row >= begin) extent.add(perplexity.values[row]);
    }
  }
  figures::add_lines(panel, curves, table.numbers("position"), perplexity);
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
