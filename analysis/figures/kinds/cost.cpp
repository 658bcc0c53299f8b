// Predicted speed: speedup of attention over dense by context, and where the time goes at the
// longest context. A line per method, budget and card of a report of kvscope cost; a row of panels
// per batch, since what one sequence costs cannot be seen beside what sixteen do.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "analysis/base/mapped.hpp"
#include "analysis/cost/predict.hpp"
#include "analysis/figures/method_rows.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "core/base/number_text.hpp"

namespace kvscope {

namespace {

using Methods = std::vector<figures::MethodRows>;

plot::Panel speedup_panel(const Table& table, const Methods& methods,
                          std::vector<std::string>& caption) {
  plot::Panel panel{
      .x = figures::length_axis(),
      .y = {.label = "Predicted speedup of attention", .scale = plot::ScaleKind::log2},
      .aspect = 0.8};
  figures::add_lines(panel, table, methods, table.numbers("context"),
                     figures::numbers_with_ends(table, "predicted_speedup"), caption);
  panel.marks.emplace_back(plot::Rule{plot::Rule::Kind::horizontal, 1.0, ""});
  return panel;
}

/// Stages one after another, a bar per line.
plot::Panel stages_panel(const Table& table, const Methods& methods) {
  const auto contexts = table.numbers("context");
  const auto labels = mapped<std::string>(methods, &figures::MethodRows::label);
  plot::Panel panel{
      .x = {.label = "Microseconds of a layer"}, .y = figures::names_axis(labels), .aspect = 0.8};
  double largest = 0.0;
  plot::Scatter totals{.label = "total", .tone = {plot::Role::reference, 0}};
  std::set<std::size_t> named;
  for (std::size_t i = 0; i < methods.size(); ++i) {
    const std::size_t row = *std::ranges::max_element(
        methods[i].rows, {}, [&](std::size_t r) { return std::pair(contexts[r], r); });
    const auto y = static_cast<double>(i);
    double at = 0.0;
    for (std::size_t s = 0; s < kCostStages.size(); ++s) {
      const double width = table.numbers(std::string(kCostStages[s]) + "_us")[row];
      if (!(width > 0.0)) continue;
      const std::string name = kCostStages[s] == "topk" ? "top-$k$" : std::string(kCostStages[s]);
      panel.marks.emplace_back(plot::Area{.label = named.insert(s).second ? name : "",
                                          .tone = {plot::Role::series, static_cast<int>(s)},
                                          .x = {at, at + width},
                                          .low = {y - 0.35, y - 0.35},
                                          .high = {y + 0.35, y + 0.35},
                                          .opacity = 0.7});
      at += width;
    }
    totals.add(at, y);
    largest = std::max(largest, at);
  }
  panel.marks.emplace_back(std::move(totals));
  panel.x.range = plot::Range{0.0, largest > 0.0 ? 1.05 * largest : 1.0};
  return panel;
}

plot::Figure make_cost(const FigureInput& input) {
  const Table table = rows_of(*input.results[0]);
  const auto batch_of = table.numbers("batch");
  const auto of_batch = [&](std::optional<double> batch) {
    return figures::method_rows(table, input.options, figures::BudgetInLabel::if_several,
                                [&](std::size_t r) { return !batch || batch_of[r] == *batch; });
  };
  const Methods all = of_batch(std::nullopt);
  if (all.empty()) figures::fail_empty(table.name(), "no row of these methods");
  const double longest = figures::values_of(all, table.numbers("context")).back();
  const std::vector<double> batches = figures::values_of(all, batch_of);
  plot::Figure figure{.columns = 2, .span = plot::Span::full};
  std::vector<std::string> over;
  for (const double batch : batches) {
    const Methods methods = of_batch(batch);
    for (plot::Panel panel : {speedup_panel(table, methods, over), stages_panel(table, methods)}) {
      if (batches.size() > 1) {
        panel.title = fmt::format("batch {:g}", batch);
        panel.aspect = 0.6;
      }
      // one legend of the methods and one of the stages
      if (figure.panels.size() < 2) panel.legend = plot::LegendPlace::above;
      figure.panels.push_back(std::move(panel));
    }
  }
  figure.caption.emplace_back(fmt::format(
      "Predicted, not measured: time of attention in one layer, mean over the measured layers, "
      "among them those that a method leaves dense; stages at the longest context of each line ({} "
      "tokens at most).",
      number_text(longest, 9)));
  figures::say_cards(table, figure.caption);
  figure.caption.insert(figure.caption.end(), over.begin(), over.end());
  const auto scaled = table.numbers("extrapolated");
  if (std::ranges::any_of(scaled, [](double x) { return x == 1.0; })) {
    figure.caption.emplace_back(
        "Lists are those measured at the recording's own length; at others a budget in tokens "
        "stays and everything else grows with the context.");
  }
  return figure;
}

}  // namespace

FigureKind figure_cost() {
  return {
      .name = "cost",
      .shows = "predicted speedup of attention by context, and where its time goes",
      .needs = "a report of kvscope cost",
      .command =
          "kvscope cost trace.h5 --selector quest --budget 256 --hardware h100-sxm "
          "--context 32768 --out cost.json",
      .kinds = {"cost"},
      .options = {"selector"},
      .make = make_cost,
  };
}

}  // namespace kvscope
