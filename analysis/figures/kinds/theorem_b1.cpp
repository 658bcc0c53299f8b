// Theorem B.1 on recorded rows: the measured cosine against each of the lower bounds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/figures/maps.hpp"
#include "analysis/figures/selection.hpp"
#include "core/base/error.hpp"

namespace kvscope {

namespace {

constexpr std::pair<std::string_view, std::string_view> kBounds[] = {
    {"printed", "as printed"},
    {"repaired", "norms repaired"},
    {"jensen", "Jensen (proved)"},
    {"worst", "worst case (proved)"}};

/// Layers and heads of arrays [layer, q_head, ...] that are shown, as slots.
std::vector<Index> slots_of(std::span<const double> axis, const std::string& text,
                            std::string_view option, const std::string& where) {
  std::vector<Index> slots;
  for (Index number : figures::parse_numbers(text, option)) {
    slots.push_back(figures::slot_of(axis, number, option, where));
  }
  if (slots.empty()) {
    for (Index i = 0; i < static_cast<Index>(axis.size()); ++i) slots.push_back(i);
  }
  return slots;
}

plot::Figure make_theorem_b1(const FigureInput& input) {
  const ResultView& result = *input.results[0];
  const figures::ArrayData cosine(result, "cos");
  const auto layers =
      slots_of(result.axis("cos", 0), input.options.layers, "layers", result.name());
  const auto heads = slots_of(result.axis("cos", 1), input.options.heads, "heads", result.name());
  auto names = figures::parse_words(input.options.metric);
  if (names.empty()) names = {"printed", "repaired", "jensen"};

  plot::Figure figure;
  figure.columns = static_cast<int>(std::min<std::size_t>(names.size(), 3));
  figure.span = names.size() > 1 ? plot::Span::full : plot::Span::column;
  figure.share_y = true;
  figure.legend = plot::LegendPlace::above;
  constexpr plot::Range kRange{-1.0, 1.0};
  constexpr Index kCells = 100;
  double most = 1.0;
  std::size_t n_rows = 0;
  for (const std::string& name : names) {
    const auto known = std::find_if(std::begin(kBounds), std::end(kBounds),
                                    [&](const auto& b) { return b.first == name; });
    if (known == std::end(kBounds)) {
      throw ConfigError(fmt::format(
          "metric: there is no bound \"{}\"; choose from printed, repaired, jensen, worst", name));
    }
    const figures::ArrayData bound(result, "bounds/" + name);
    const figures::ArrayData is_violated(result, "violated/" + name);
    std::vector<double> x;
    std::vector<double> y;
    std::size_t n_trivial = 0;
    std::size_t n_above = 0;
    std::size_t n_violated = 0;
    for (Index l : layers) {
      for (Index h : heads) {
        for (Index r = 0; r < cosine.spec.shape[2]; ++r) {
          const double c = cosine(l, h, r);
          const double b = bound(l, h, r);
          if (std::isnan(c) || std::isnan(b)) continue;
          n_trivial += b <= -1.0;  // the analysis cuts bounds there: no cosine is smaller
          n_above += b > 1.0;
          n_violated += is_violated(l, h, r) != 0.0;
          x.push_back(b);
          y.push_back(c);
        }
      }
    }
    n_rows = x.size();
    if (n_rows == 0) {
      throw ConfigError(fmt::format("{}: no row of this selection has a bound", result.name()));
    }
    const figures::Density density = figures::density_of(x, y, kRange, kRange, kCells);
    for (float v : density.map.values)
      most = std::max(most, static_cast<double>(std::isnan(v) ? 0.0F : v));
    plot::Panel panel;
    panel.title = std::string(known->second);
    panel.x.label = "Lower bound on cos($k$*, $q$)";
    panel.y.label = "Measured cos($k$*, $q$)";
    panel.x.range = panel.y.range = kRange;
    panel.aspect = 1.0;
    panel.colour = figures::log_colours("Rows per cell");
    panel.colour->show_bar = figure.panels.size() + 1 == names.size();
    plot::Area violated;
    violated.label = "bound violated";
    violated.tone = {plot::Role::highlight, 0};
    violated.x = {-1.0, 1.0};
    violated.low = {-1.0, -1.0};
    violated.high = {-1.0, 1.0};
    panel.marks.emplace_back(violated);
    panel.marks.emplace_back(density.map);
    panel.marks.emplace_back(plot::Rule{plot::Rule::Kind::diagonal, 0.0, "bound = cosine"});
    const auto percent = [&](std::size_t n) {
      return 100.0 * static_cast<double>(n) / static_cast<double>(n_rows);
    };
    plot::Note note{fmt::format("violated: {} ({:.2g}%)", n_violated, percent(n_violated)), 0.97,
                    0.86, plot::Note::Align::right};
    if (n_trivial > 0) note.text += fmt::format("\nsays nothing: {:.2g}%", percent(n_trivial));
    if (n_above > 0) note.text += fmt::format("\nabove 1: {:.2g}%", percent(n_above));
    note.y -= 0.065 * static_cast<double>(std::count(note.text.begin(), note.text.end(), '\n'));
    panel.marks.emplace_back(std::move(note));
    figure.panels.push_back(std::move(panel));
  }
  for (plot::Panel& panel : figure.panels)
    panel.colour->axis.range = plot::Range{1.0, std::max(most, 2.0)};
  figure.caption.push_back(
      fmt::format("n = {} query rows over {} layers and {} heads; a bound is violated where it "
                  "exceeds the cosine by more than rounding, as the analysis found. A bound of −1 "
                  "or less says nothing; it is drawn at −1.",
                  n_rows, layers.size(), heads.size()));
  return figure;
}

}  // namespace

FigureKind figure_theorem_b1() {
  return {
      .name = "theorem-b1",
      .shows =
          "the measured cosine of query and key against Theorem B.1's bounds, printed and "
          "repaired",
      .needs = "an analysis of Theorem B.1",
      .command = "kvscope analyze theorem-b1 trace.h5 --out b1.h5",
      .kinds = {"theorem-b1"},
      .options = {"metric", "layers", "heads"},
      .make = make_theorem_b1,
  };
}

}  // namespace kvscope
