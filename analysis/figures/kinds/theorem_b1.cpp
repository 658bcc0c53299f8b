// Theorem B.1 on recorded rows: the measured cosine against each of the bounds; a point per row, or
// how many there are where they are many.
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
  const figures::HeadSlots shown(result, "cos", input.options);
  auto names = figures::parse_words(input.options.metric);
  if (names.empty()) names = {"printed", "repaired", "jensen"};

  plot::Figure figure = figures::panels_in_rows(names.size(), 3);
  const auto known = std::span(EnumNames<TheoremBound>::value);
  constexpr plot::Range kRange{-1.0, 1.0};
  constexpr Index kCells = 100;
  std::vector<plot::HeatMap> maps;
  std::size_t n_rows = 0;
  std::size_t n_upper = 0;
  for (const std::string& name : names) {
    const auto which =
        static_cast<TheoremBound>(figures::metric_slot(name, {known.begin(), known.end()}));
    const figures::ArrayData cosine(result, figures::is_upper(which) ? "cos_mean_query" : "cos");
    const figures::ArrayData bound(result, figures::array_of(which));
    const figures::ArrayData is_violated(result, "violated/" + name);
    n_upper += figures::is_upper(which) ? 1 : 0;
    figures::TheoremCounts counts(which);
    plot::Scatter rows{.size = 0.8, .opacity = 0.75};
    plot::Scatter broken{.label = "violated", .tone = {plot::Role::series, 1}, .size = 1.4};
    for (Index l : shown.layers) {
      for (Index h : shown.heads) {
        for (Index r = 0; r < cosine.spec.shape[2]; ++r) {
          const double c = cosine(l, h, r);
          const double b = bound(l, h, r);
          if (std::isnan(c) || std::isnan(b)) continue;
          const bool fails = is_violated(l, h, r) != 0.0;
          counts.add(b, c, fails);
          const auto row =
              static_cast<std::size_t>((l * cosine.spec.shape[1] + h) * cosine.spec.shape[2] + r);
          rows.add(b, c, row);
          if (fails) broken.add(b, c, row);
        }
      }
    }
    n_rows = rows.x.size();
    if (n_rows == 0) {
      throw ConfigError(
          "{}: no row of this selection has a bound: each query sees one key only, or "
          "fewer keys than the rank that was asked for",
          result.name());
    }
    plot::Panel panel = figures::theorem_panel(which, kRange);
    if (n_rows > figures::kMostPoints) {
      maps.push_back(figures::density_of(rows.x, rows.y, kRange, kRange, kCells));
      panel.colour = figures::log_colours("Rows per cell");
      panel.colour->show_bar = figure.panels.size() + 1 == names.size();
      panel.marks.emplace_back(maps.back());
      panel.marks.emplace_back(figures::theorem_diagonal());
    } else {
      panel.marks.emplace_back(figures::theorem_diagonal());
      panel.marks.emplace_back(std::move(rows));
      if (!broken.x.empty()) panel.marks.emplace_back(std::move(broken));
    }
    panel.marks.emplace_back(counts.note(/*line=*/0.065));
    figure.panels.push_back(std::move(panel));
  }
  for (plot::Panel& panel : figure.panels)
    if (panel.colour) panel.colour->axis.range = figures::range_of_counts(maps);
  figure.share_y = n_upper == 0 || n_upper == names.size();
  figure.caption.push_back(
      fmt::format("n = {} query rows over {} layers and {} heads; a bound is violated where the "
                  "cosine lies on its wrong side by more than rounding, as the analysis found.",
                  n_rows, shown.layers.size(), shown.heads.size()));
  if (n_upper < names.size()) {
    figure.caption.emplace_back(
        "A lower bound of −0.99 or less says nothing; below −1 it is drawn there.");
  }
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
