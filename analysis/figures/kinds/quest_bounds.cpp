// Quest's page bound against the true maximum of each page, and how far down the bound ranks the
// truly best page.
#include "analysis/figures/kit.hpp"

namespace kvscope {

namespace {

plot::Figure make_quest_bounds(const FigureInput& input) {
  const ResultView& result = *input.results[0];
  const figures::ArrayData bound(result, "bound");
  const figures::ArrayData truth(result, "true_max");
  const figures::ArrayData violated(result, "violated");
  const figures::ArrayData rank(result, "best_rank");
  const auto layers =
      figures::slots_of(result.axis("bound", 0), input.options.layers, "layers", result.name());
  const auto heads =
      figures::slots_of(result.axis("bound", 1), input.options.heads, "heads", result.name());
  if (bound.spec.shape[3] == 0) {
    throw ConfigError("{}: the result was made with --store-pages false", result.name());
  }
  std::vector<double> x;
  std::vector<double> y;
  std::vector<double> ranks;
  plot::Extent extent(plot::ScaleKind::linear);
  std::size_t n_violated = 0;
  for (const Index l : layers) {
    for (const Index h : heads) {
      for (Index s = 0; s < bound.spec.shape[2]; ++s) {
        ranks.push_back(rank(l, h, s));
        for (Index p = 0; p < bound.spec.shape[3]; ++p) {
          if (std::isnan(bound(l, h, s, p))) continue;
          x.push_back(truth(l, h, s, p));
          y.push_back(bound(l, h, s, p));
          extent.add(x.back());
          extent.add(y.back());
          n_violated += violated(l, h, s, p) != 0.0;
        }
      }
    }
  }
  if (x.empty()) throw ConfigError("{}: the selection is empty", result.name());

  plot::Figure figure;
  figure.columns = 2;
  figure.span = plot::Span::full;
  {
    plot::Panel panel{.title = "Bound of a page",
                      .x = {.label = "True page maximum, $q·k$"},
                      .y = {.label = "Bound, $q·k$"}};
    panel.x.range = panel.y.range = extent.range();
    panel.aspect = 0.8;
    panel.colour = figures::log_colours("Pages per cell");
    plot::HeatMap map = figures::density_of(x, y, extent.range(), extent.range(), 120).map;
    const float most = *std::ranges::max_element(map.values, [](float a, float b) {
      return (std::isnan(a) ? 0.0F : a) < (std::isnan(b) ? 0.0F : b);
    });
    panel.colour->axis.range = plot::Range{1.0, std::max(2.0, static_cast<double>(most))};
    panel.marks.emplace_back(std::move(map));
    panel.marks.emplace_back(plot::Rule{plot::Rule::Kind::diagonal, 0.0, "bound = maximum"});
    panel.legend = plot::LegendPlace::inside;
    figure.panels.push_back(std::move(panel));
  }
  {
    plot::Panel panel;
    panel.title = "Rank of the truly best page";
    panel.x.label = "Pages kept by the bound";
    panel.y.label = "Steps with the best page kept";
    panel.x.scale = plot::ScaleKind::log2;
    panel.y.format = plot::TickFormat::percent;
    panel.aspect = 0.8;
    std::ranges::sort(ranks);
    plot::Line line{.markers = false, .steps = true};
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const bool is_last = i + 1 == ranks.size() || ranks[i + 1] != ranks[i];
      if (!is_last) continue;
      line.x.push_back(ranks[i] + 1.0);
      line.y.push_back(static_cast<double>(i + 1) / static_cast<double>(ranks.size()));
    }
    line.x.push_back(static_cast<double>(bound.spec.shape[3]));
    line.y.push_back(1.0);
    panel.x.range = plot::Range{1.0, static_cast<double>(std::max<Index>(2, bound.spec.shape[3]))};
    panel.y.range = plot::Range{0.0, 1.02};
    panel.marks.emplace_back(std::move(line));
    figure.panels.push_back(std::move(panel));
  }
  figure.caption.push_back(fmt::format(
      "Left: n = {} pages (dot products unscaled), {} bounds below the true maximum by more than "
      "rounding. Right: share of n = {} steps and query heads whose page of largest true maximum "
      "is among the first pages by the bound.",
      x.size(), n_violated, ranks.size()));
  return figure;
}

}  // namespace

FigureKind figure_quest_bounds() {
  return {
      .name = "quest-bounds",
      .shows = "Quest's page bound against the true page maximum, and the best page's rank by it",
      .needs = "an analysis of Quest's bounds that keeps its pages",
      .command = "kvscope analyze quest trace.h5 --out quest.h5",
      .kinds = {"quest"},
      .options = {"layers", "heads"},
      .make = make_quest_bounds,
  };
}

}  // namespace kvscope
