// How many keys hold a share p of a row's attention: distribution over rows, and medians by layer.
#include <fmt/format.h>

#include <numeric>

#include "analysis/base/statistics.hpp"
#include "analysis/figures/maps.hpp"
#include "analysis/figures/spec.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"

namespace kvscope {

namespace {

plot::Figure make_nucleus_size(const FigureInput& input) {
  const ResultView& result = *input.results[0];
  const figures::ArrayData counts(result, "nucleus_counts");
  const figures::ArrayData median(result, "nucleus_p50");
  const auto layers = result.axis("nucleus_p50", 0);
  const auto shares = result.axis("nucleus_p50", 2);
  const auto bins = result.axis("nucleus_counts", 3);  // smallest size of each

  plot::Panel shown{.x = {.label = "Nucleus size (keys)",
                          .scale = plot::ScaleKind::log2,
                          .format = plot::TickFormat::tokens},
                    .y = {.label = "Rows with at most this many",
                          .range = plot::Range{0.0, 1.02},
                          .format = plot::TickFormat::percent}};
  plot::Panel by_layer{.x = {.label = "Layer", .whole_numbers = true},
                       .y = {.label = "Median nucleus size (keys)",
                             .scale = plot::ScaleKind::log2,
                             .format = plot::TickFormat::tokens}};
  double n_rows = 0.0;
  for (Index p = 0; p < static_cast<Index>(shares.size()); ++p) {
    plot::Line line{
        .label = fmt::format("$p$ = {:g}", shares[static_cast<std::size_t>(p)]),
        .tone = {plot::Role::ordered, static_cast<int>(p), static_cast<int>(shares.size())}};
    plot::Line medians = line;
    std::vector<double> total(bins.size(), 0.0);
    for (Index l = 0; l < counts.spec.shape[0]; ++l) {
      for (Index h = 0; h < counts.spec.shape[1]; ++h) {
        for (std::size_t b = 0; b < bins.size(); ++b)
          total[b] += counts(l, h, p, static_cast<Index>(b));
      }
    }
    n_rows = std::accumulate(total.begin(), total.end(), 0.0);
    double so_far = 0.0;
    for (std::size_t b = 0; b < bins.size() && n_rows > 0.0; ++b) {
      so_far += total[b];
      // a bin holds the sizes [2^i, 2^(i+1)): the share is known at its last size
      line.add(2.0 * bins[b] - 1.0, so_far / n_rows);
    }
    shown.marks.emplace_back(std::move(line));
    for (std::size_t l = 0; l < layers.size(); ++l) {
      std::vector<double> of_heads;
      for (Index h = 0; h < median.spec.shape[1]; ++h)
        of_heads.push_back(median(static_cast<Index>(l), h, p));
      medians.add(layers[l], quantile(of_heads, 0.5),
                  {quantile(of_heads, 0.25), quantile(of_heads, 0.75)});
    }
    by_layer.marks.emplace_back(std::move(medians));
  }
  if (n_rows == 0.0) throw ConfigError("{}: no row was counted", result.name());
  plot::Figure figure = figures::side_by_side(std::move(shown), std::move(by_layer));
  figure.legend = plot::LegendPlace::above;
  figure.caption.push_back(
      fmt::format("A row's nucleus: its fewest keys that hold a share p of the attention. Rows: "
                  "n = {} of all layers and heads. By layer: median over n = {} heads of each "
                  "head's median; bands: the middle half of the heads.",
                  n_rows, counts.spec.shape[1]));
  if (const double n = number_at(totals_of(result.summary()), "windowed_layers"); n > 0.0)
    figure.caption.push_back(
        fmt::format("{:g} of the layers have a sliding window: no key lies before it.", n));
  return figure;
}

}  // namespace

FigureKind figure_nucleus_size() {
  return {
      .name = "nucleus-size",
      .shows =
          "how many keys hold a share p of the attention: distribution over rows, and by layer",
      .needs = "a coverage analysis",
      .command = "kvscope analyze coverage trace.h5 --p 0.9,0.95,0.99 --out coverage.h5",
      .kinds = {"coverage"},
      .make = make_nucleus_size,
  };
}

}  // namespace kvscope
