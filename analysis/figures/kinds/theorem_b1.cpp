// Theorem B.1 on recorded rows: the measured cosine against each of the lower bounds.
#include <fmt/format.h>

#include <cmath>

#include "analysis/figures/maps.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "analysis/figures/theorem_panel.hpp"
#include "core/base/error.hpp"

namespace kvscope {

namespace {

plot::Figure make_theorem_b1(const FigureInput& input) {
  const ResultView& result = *input.results[0];
  const figures::ArrayData cosine(result, "cos");
  const figures::HeadSlots shown(result, "cos", input.options);
  auto names = figures::parse_words(input.options.metric);
  if (names.empty()) names = {"printed", "repaired", "jensen"};

  plot::Figure figure = figures::panels_in_rows(names.size(), 3);
  figure.share_y = true;
  const auto lower = std::span(EnumNames<TheoremBound>::value).first(4);
  constexpr plot::Range kRange{-1.0, 1.0};
  constexpr Index kCells = 100;
  std::vector<plot::HeatMap> maps;
  std::size_t n_rows = 0;
  for (const std::string& name : names) {
    const auto which =
        static_cast<TheoremBound>(figures::metric_slot(name, {lower.begin(), lower.end()}));
    const figures::ArrayData bound(result, figures::array_of(which));
    const figures::ArrayData is_violated(result, "violated/" + name);
    figures::TheoremCounts counts(which);
    std::vector<double> x;
    std::vector<double> y;
    for (Index l : shown.layers) {
      for (Index h : shown.heads) {
        for (Index r = 0; r < cosine.spec.shape[2]; ++r) {
          const double c = cosine(l, h, r);
          const double b = bound(l, h, r);
          if (std::isnan(c) || std::isnan(b)) continue;
          counts.add(b, c, is_violated(l, h, r) != 0.0);
          x.push_back(b);
          y.push_back(c);
        }
      }
    }
    n_rows = x.size();
    if (n_rows == 0) throw ConfigError("{}: no row of this selection has a bound", result.name());
    maps.push_back(figures::density_of(x, y, kRange, kRange, kCells).map);
    plot::Panel panel = figures::theorem_panel(which, kRange);
    panel.colour = figures::log_colours("Rows per cell");
    panel.colour->show_bar = figure.panels.size() + 1 == names.size();
    panel.marks.emplace_back(maps.back());
    panel.marks.emplace_back(figures::theorem_diagonal());
    panel.marks.emplace_back(counts.note(/*line=*/0.065));
    figure.panels.push_back(std::move(panel));
  }
  for (plot::Panel& panel : figure.panels)
    panel.colour->axis.range = figures::range_of_counts(maps);
  figure.caption.push_back(
      fmt::format("n = {} query rows over {} layers and {} heads; a bound is violated where it "
                  "exceeds the cosine by more than rounding, as the analysis found. A bound of "
                  "−0.99 or less says nothing; below −1 it is drawn there.",
                  n_rows, shown.layers.size(), shown.heads.size()));
  return figure;
}

}  // namespace

FigureKind figure_theorem_b1() {
  return {
      .name = "theorem-b1",
      .shows =
          "the measured cosine of query and key against Theorem B.1's bounds, printed and repaired",
      .needs = "an analysis of Theorem B.1",
      .command = "kvscope analyze theorem-b1 trace.h5 --out b1.h5",
      .kinds = {"theorem-b1"},
      .options = {"metric", "layers", "heads"},
      .make = make_theorem_b1,
  };
}

}  // namespace kvscope
