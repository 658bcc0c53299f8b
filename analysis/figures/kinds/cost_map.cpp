// Where a method pays off: predicted speedup, time to the first token or tokens a second over
// context and batch, a map per method and card; cells without room on the card are masked. Of one
// batch the same as curves with the ends of their intervals.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/base/mapped.hpp"
#include "analysis/figures/maps.hpp"
#include "analysis/figures/method_rows.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {

/// What a map can show: a column, with its ends in NAME_low and NAME_high where there are such.
struct CostQuantity {
  const char* name;      // of the option metric
  const char* question;  // of kvscope cost --shape
  const char* column;
  const char* label;
  bool is_ratio;  // to dense attention: 1 is its equal
};
constexpr std::array<CostQuantity, 5> kCostQuantities = {
    {{"speedup", "speedup", "predicted_speedup", "Predicted speedup of attention", true},
     {"pays-off", "pays-off", "predicted_speedup", "Predicted speedup of attention", true},
     {"call-speedup", "", "call_speedup", "Predicted speedup of the whole call", true},
     {"first-token", "first-token", "first_token_s", "Predicted seconds to the first token", false},
     {"tokens-per-second", "tokens-per-second", "tokens_per_s", "Predicted tokens a second",
      false}}};

const CostQuantity& quantity_shown(const Table& table, const std::string& metric) {
  if (!metric.empty()) {
    const auto names = mapped<std::string>(kCostQuantities, &CostQuantity::name);
    return kCostQuantities[figures::metric_slot(metric, names)];
  }
  const std::string asked =
      table.has_text("question") ? table.text("question").at(0) : std::string("speedup");
  for (const CostQuantity& one : kCostQuantities) {
    if (one.question == asked) return one;
  }
  return kCostQuantities.front();
}

/// Numbers of the rows, NaN where the card has no room for it.
figures::RowNumbers numbers_with_room(const Table& table, const std::string& column) {
  figures::RowNumbers numbers = figures::numbers_with_ends(table, column);
  const auto share = table.numbers("memory_share");
  for (std::size_t r = 0; r < numbers.values.size(); ++r) {
    if (share[r] > 1.0) numbers.values[r] = kNan;
  }
  return numbers;
}

plot::Panel map_panel(const figures::MethodRows& method, std::span<const figures::RowMean> cells,
                      const CostQuantity& shown, const std::vector<double>& batches,
                      const std::vector<double>& contexts) {
  std::vector<float> values;
  plot::Boxes faster{.label = "faster than dense attention"};
  for (const figures::RowMean& cell : cells) {
    const auto column = static_cast<double>(values.size() % contexts.size());
    const auto row = static_cast<double>(values.size() / contexts.size());
    values.push_back(static_cast<float>(cell.value()));
    if (!shown.is_ratio || !(cell.value() > 1.0)) continue;
    faster.x.push_back({column + 0.03, column + 0.97});
    faster.y.push_back({row + 0.03, row + 0.97});
  }
  plot::Panel panel{
      .title = method.label,
      .x = {.label = "Context length (tokens)",
            .ticks = figures::cell_ticks(contexts, plot::TickFormat::tokens)},
      .y = {.label = "Batch", .ticks = figures::cell_ticks(batches), .has_names = true},
      .colour =
          plot::ColourAxis{
              .axis = {.label = shown.label,
                       .scale = shown.is_ratio ? plot::ScaleKind::linear : plot::ScaleKind::log10},
              .masked_label = method.rows.size() < cells.size() ? "no room, or not asked"
                                                                : "no room on the card"},
      .aspect = std::clamp(
          0.9 * static_cast<double>(batches.size()) / static_cast<double>(contexts.size()), 0.2,
          0.9),
      .legend = plot::LegendPlace::above};
  plot::HeatMap map = figures::unit_cells(batches.size(), contexts.size(), std::move(values));
  map.print_values = true;
  panel.marks.emplace_back(std::move(map));
  if (!faster.x.empty()) panel.marks.emplace_back(std::move(faster));
  return panel;
}

plot::Figure make_cost_map(const FigureInput& input) {
  const Table table = rows_of(*input.results[0]);
  const CostQuantity& shown = quantity_shown(table, input.options.metric);
  const figures::RowNumbers numbers = numbers_with_room(table, shown.column);
  std::vector<figures::MethodRows> methods =
      figures::method_rows(table, input.options, figures::BudgetInLabel::always);
  if (methods.empty()) figures::fail_empty(table.name(), "no row of these methods");
  figures::LeftOut no_room;
  std::erase_if(methods, [&](const figures::MethodRows& method) {
    const bool has_none = std::ranges::none_of(
        method.rows, [&](std::size_t r) { return std::isfinite(numbers.values[r]); });
    if (has_none) no_room.add(method.label);
    return has_none;
  });
  if (methods.empty())
    figures::fail_empty(table.name(), fmt::format("no cell has a number of {}", shown.name));
  const auto context = table.numbers("context");
  const auto batch = table.numbers("batch");
  const std::vector<double> contexts = figures::values_of(methods, context);
  const std::vector<double> batches = figures::values_of(methods, batch);
  plot::Figure figure;
  std::vector<std::string> over;
  const bool is_map = batches.size() > 1;
  if (is_map) {
    constexpr std::size_t kFew = 4;  // contexts: two such maps have room beside each other
    figures::set_in_rows(figure, methods.size(), contexts.size() <= kFew ? 2 : 1);
    figure.span = plot::Span::full;
    for (const figures::MethodRows& method : methods) {
      const auto cells = figures::cells_of(method, context, batch, numbers, contexts, batches);
      figures::say_means(table, mapped<std::vector<std::size_t>>(cells, &figures::RowMean::rows),
                         over);
      figure.panels.push_back(map_panel(method, cells, shown, batches, contexts));
    }
    for (std::size_t i = 1; i < figure.panels.size(); ++i)
      figure.panels[i].legend = plot::LegendPlace::none;
    figure.legend = plot::LegendPlace::none;
  } else {
    plot::Panel& panel = figure.panels.emplace_back(
        plot::Panel{.x = figures::length_axis(),
                    .y = {.label = shown.label,
                          .scale = shown.is_ratio ? plot::ScaleKind::log2 : plot::ScaleKind::log10},
                    .legend = plot::LegendPlace::above});
    figures::add_lines(panel, table, methods, context, numbers, over);
    if (shown.is_ratio)
      panel.marks.emplace_back(plot::Rule{plot::Rule::Kind::horizontal, 1.0, "dense attention"});
  }
  figure.caption.emplace_back(
      input.results[0]->info().kind == "cost"
          ? "Predicted, not measured: means over the measured layers, among "
            "them those that a method leaves dense."
          : "Predicted, not measured.");
  figures::say_cards(table, figure.caption);
  if (!is_map && !numbers.low.empty()) {
    figure.caption.emplace_back(
        "Bands: where a measured figure would lie in eight of ten cases, as those of the ledger "
        "do; lists of different queries may agree or not.");
  }
  const auto share = table.numbers("memory_share");
  if (std::ranges::any_of(share, [](double x) { return x > 1.0; }))
    figure.caption.emplace_back(
        "No room: weights and cache over the card's memory; nothing is shown there.");
  figure.caption.insert(figure.caption.end(), over.begin(), over.end());
  no_room.say("Nowhere room, or no such number", figure.caption);
  return figure;
}

}  // namespace

FigureKind figure_cost_map() {
  return {
      .name = "cost-map",
      .shows =
          "predicted speedup, time to the first token or tokens a second over context and "
          "batch, and where the card has no room",
      .needs = "a report of kvscope cost --shape (or of a recording)",
      .command =
          "kvscope cost --shape config.json --hardware h100-sxm --context 4k:1M --batch "
          "1,16,64 --out cost.json",
      .kinds = {"cost-shape|cost"},
      .options = {"metric", "selector"},
      .make = make_cost_map,
  };
}

}  // namespace kvscope
