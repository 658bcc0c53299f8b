// Perplexity of everything read so far, by position: SpecAttn's figure 5, Quest's figure on PG19.
//
// Arrays: curve/log_perplexity [pair, position] with curve/position, and the table's columns
// selector, budget_kind and budget, whose row i belongs to pair i. As a table: columns selector,
// position, log_perplexity (the mean loss in nats up to this position), budget optional.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/figures/beyond_oracle.hpp"
#include "analysis/figures/maps.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "analysis/plot/scale.hpp"

namespace kvscope {

namespace {

struct Curve {
  std::string selector;
  std::string label;
  std::vector<double> position;
  std::vector<double> perplexity;
  std::string budget;          // as text: what curves are compared at
  double kept = std::nan("");  // keys per query, measured
};

std::vector<Curve> read_curves(const ResultView& result) {
  const Table table = rows_of(result);
  const TextColumn& selectors = table.text("selector");
  std::vector<Curve> curves;
  if (result.find("curve/log_perplexity") != nullptr) {
    const figures::ArrayData values(result, "curve/log_perplexity");
    const auto position = result.read("curve/position");
    // rows behind the curves are of methods that could not be run (a match that they refused)
    const auto n_curves = std::min(table.n_rows(), static_cast<std::size_t>(values.spec.shape[0]));
    for (std::size_t p = 0; p < n_curves; ++p) {
      Curve curve{selectors.at(p),
                  figures::method_at_budget(table, p),
                  position,
                  {},
                  figures::budget_label(table, p),
                  table.has("kept") ? table.numbers("kept")[p] : std::nan("")};
      for (Index i = 0; i < values.spec.shape[1]; ++i)
        curve.perplexity.push_back(std::exp(values(static_cast<Index>(p), i)));
      curves.push_back(std::move(curve));
    }
    return curves;
  }
  const auto position = table.numbers("position");
  const auto loss = table.numbers("log_perplexity");
  std::map<std::string, std::size_t> slot_of;
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    const std::string label = figures::method_at_budget(table, r);
    const auto [it, is_new] = slot_of.try_emplace(label, curves.size());
    if (is_new) curves.push_back({selectors.at(r), label, {}, {}, figures::budget_label(table, r)});
    curves[it->second].position.push_back(position[r]);
    curves[it->second].perplexity.push_back(std::exp(loss[r]));
  }
  return curves;
}

plot::Figure make_perplexity(const FigureInput& input) {
  std::vector<Curve> curves = read_curves(*input.results[0]);
  // The reference is drawn over those that lie on it.
  std::stable_partition(curves.begin(), curves.end(),
                        [](const Curve& one) { return one.selector != "full"; });
  const figures::Wanted wanted(input.options.selector);
  std::erase_if(curves, [&](const Curve& curve) { return !wanted.has(curve.selector); });
  if (curves.empty()) figures::fail_empty(input.results[0]->name(), "no curve is left");
  // one selector may come with several budgets: each needs a look of its own
  std::vector<std::string> looks;
  std::map<std::string, int> seen;
  for (const Curve& curve : curves) {
    const int n = seen[curve.selector]++;
    looks.push_back(n == 0 ? curve.selector : fmt::format("{}:{}", curve.selector, n));
  }
  const figures::MethodTones tones(looks);
  plot::Panel panel{.x = {.label = "Position (tokens)"},
                    .y = {.label = "Cumulative perplexity", .scale = plot::ScaleKind::log10},
                    .aspect = 0.6,
                    .legend = plot::LegendPlace::above};
  plot::Extent extent(plot::ScaleKind::log10);
  constexpr std::size_t kMostPoints = 40;
  std::size_t largest_stride = 1;
  for (std::size_t i = 0; i < curves.size(); ++i) {
    plot::Line line{.label = curves[i].label, .tone = tones.of(looks[i])};
    // A mean over all tokens so far: few points say it, and dashes and markers can be seen. The
    // first tokens of a curve are means over few and would set the scale.
    const std::size_t n = curves[i].perplexity.size();
    const std::size_t stride = std::max<std::size_t>(1, (n + kMostPoints - 1) / kMostPoints);
    largest_stride = std::max(largest_stride, stride);
    for (std::size_t t = (n - 1) % stride; t < n; t += stride) {
      line.add(curves[i].position[t], curves[i].perplexity[t]);
      if (n <= 200 || t >= n / 25) extent.add(line.y.back());
    }
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
  std::vector<figures::LiveResult> ends;
  for (const Curve& curve : curves) {
    if (!curve.perplexity.empty())
      ends.push_back({curve.selector, curve.budget, curve.perplexity.back(), curve.kept});
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
