// Quest's page bound against the true maximum of each page (a point per page, or how many there are
// where they are many), and how far down the bound ranks the truly best page.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/figures/maps.hpp"
#include "analysis/figures/spec.hpp"
#include "analysis/plot/scale.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/trace/result.hpp"

namespace kvscope {

namespace {

const std::vector<std::string> kPrograms = {"eval", "kernel"};

/// The points of pages: (true maximum, bound).
struct PagePoints {
  std::vector<double> x, y;
  plot::Scatter others{.tone = {plot::Role::neutral, 0}, .size = 0.7, .opacity = 0.5};
  plot::Scatter kept{
      .label = "kept pages", .tone = {plot::Role::series, 4}, .size = 0.8, .opacity = 0.8};
  plot::Scatter broken{.label = "bound violated", .tone = {plot::Role::reference, 0}, .size = 2.0};
};

plot::Panel bounds_panel(PagePoints points) {
  plot::Extent extent(plot::ScaleKind::linear);
  for (const std::vector<double>* values : {&points.x, &points.y}) {
    for (const double value : *values) extent.add(value);
  }
  plot::Range both = extent.range();
  const double margin = std::max(0.03 * (both.high - both.low), 1e-3);
  both = {both.low - margin, both.high + margin};
  plot::Panel bounds{.title = "Bound of a page",
                     .x = {.label = "True page maximum, $q·k$", .range = both},
                     .y = {.label = "Bound, $q·k$", .range = both},
                     .aspect = 0.8,
                     .legend = plot::LegendPlace::inside};
  const plot::Rule diagonal{plot::Rule::Kind::diagonal, 0.0, "bound = maximum"};
  if (points.x.size() > figures::kMostPoints) {
    plot::HeatMap map = figures::density_of(points.x, points.y, both, both, 120);
    bounds.colour = figures::log_colours("Pages per cell");
    bounds.colour->axis.range = figures::range_of_counts({&map, 1});
    bounds.marks.emplace_back(std::move(map));
    bounds.marks.emplace_back(diagonal);
    return bounds;
  }
  if (!points.others.x.empty()) bounds.marks.emplace_back(std::move(points.others));
  bounds.marks.emplace_back(diagonal);
  if (!points.kept.x.empty()) bounds.marks.emplace_back(std::move(points.kept));
  if (!points.broken.x.empty()) bounds.marks.emplace_back(std::move(points.broken));
  return bounds;
}

/// `ranks`: of the page of largest true maximum by the bound, from 0.
plot::Panel rank_panel(std::vector<double> ranks, double n_pages) {
  std::ranges::sort(ranks);
  plot::Line line{.markers = false, .steps = true};
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const bool is_last = i + 1 == ranks.size() || ranks[i + 1] != ranks[i];
    if (!is_last) continue;
    line.add(ranks[i] + 1.0, static_cast<double>(i + 1) / static_cast<double>(ranks.size()));
  }
  line.add(n_pages, 1.0);
  return {.title = "Rank of the truly best page",
          .x = {.label = "Pages kept by the bound",
                .scale = plot::ScaleKind::log2,
                .range = plot::Range{1.0, std::max(2.0, n_pages)}},
          .y = {.label = "Steps with the best page kept",
                .range = plot::Range{0.0, 1.02},
                .format = plot::TickFormat::percent},
          .marks = {std::move(line)},
          .aspect = 0.8};
}

plot::Figure make_quest_bounds(const FigureInput& input) {
  const ResultView& result = *input.results[0];
  if (result.find("bound") == nullptr)
    throw ConfigError("{}: the result was made with --store-pages false", result.name());
  const figures::ArrayData bound(result, "bound");
  const figures::ArrayData truth(result, "true_max");
  const figures::ArrayData violated(result, "violated");
  const figures::ArrayData rank(result, "best_rank");
  figures::HeadSlots shown(result, "bound", input.options);
  const Json* const rows = list_at(result.summary(), "layers");
  const auto is_dense = [&](Index l) {
    return rows != nullptr && static_cast<std::size_t>(l) < rows->size() &&
           (*rows)[static_cast<std::size_t>(l)].value("dense", false);
  };
  const bool leaves_out = input.options.layers.empty() &&
                          std::ranges::any_of(shown.layers, is_dense) &&
                          !std::ranges::all_of(shown.layers, is_dense);
  if (leaves_out) std::erase_if(shown.layers, is_dense);
  const std::size_t program =
      input.options.metric.empty() ? 0 : figures::metric_slot(input.options.metric, kPrograms);
  const auto* selected = result.find(kPrograms[program] + "/selected");
  const std::vector<double> is_kept =
      selected == nullptr ? std::vector<double>() : result.read(selected->name);
  PagePoints points;
  std::vector<double> ranks;
  const Shape& shape = bound.spec.shape;
  for (const Index l : shown.layers) {
    for (const Index h : shown.heads) {
      for (Index s = 0; s < shape[2]; ++s) {
        ranks.push_back(rank(l, h, s));
        for (Index p = 0; p < shape[3]; ++p) {
          if (std::isnan(bound(l, h, s, p))) continue;
          const auto at =
              static_cast<std::size_t>(((l * shape[1] + h) * shape[2] + s) * shape[3] + p);
          const double x = truth(l, h, s, p);
          const double y = bound(l, h, s, p);
          points.x.push_back(x);
          points.y.push_back(y);
          const bool is_marked = at < is_kept.size() && is_kept[at] != 0.0;
          (is_marked ? points.kept : points.others).add(x, y, at);
          if (violated(l, h, s, p) != 0.0) points.broken.add(x, y, at);
        }
      }
    }
  }
  if (points.x.empty()) throw ConfigError("{}: the selection is empty", result.name());
  const std::size_t n_points = points.x.size();
  const std::size_t n_violated = points.broken.x.size();
  const std::size_t n_ranks = ranks.size();
  plot::Figure figure = figures::side_by_side(
      bounds_panel(std::move(points)), rank_panel(std::move(ranks), static_cast<double>(shape[3])));
  const bool are_marked = !is_kept.empty() && n_points <= figures::kMostPoints;
  figure.caption.push_back(fmt::format(
      "Bounds: n = {} pages (dot products unscaled), {} below the true maximum by more than "
      "rounding. Best page: share of n = {} steps and query heads whose page of largest true "
      "maximum is among the first pages by the bound.",
      n_points, n_violated, n_ranks));
  if (leaves_out)
    figure.caption.emplace_back("Layers that are dense or have a sliding window are left out.");
  figure.caption.push_back(
      are_marked ? fmt::format("Kept pages: by Quest's {} program.", kPrograms[program])
                 : std::string("Kept pages are not marked."));
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
      .options = {"metric", "layers", "heads"},
      .make = make_quest_bounds,
  };
}

}  // namespace kvscope
