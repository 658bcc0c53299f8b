#include "analysis/figures/sweep_cells.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "core/base/nan.hpp"

namespace kvscope::figures {

std::string interval_stem(const Table& table, std::string_view column) {
  std::string stem(column);
  if (stem.ends_with("_mean")) stem.resize(stem.size() - 5);
  return table.has(stem + "_low") && table.has(stem + "_high") ? stem : std::string();
}

SweepCells collect_cells(const Table& table, const SweepSelection& selection,
                         const SweepMetric& metric, Along along) {
  const TextColumn& selectors = table.text("selector");
  const TextColumn* phases = table.has_text("phase") ? &table.text("phase") : nullptr;
  const TextColumn& kinds = table.text("budget_kind");
  const auto budget = table.numbers("budget");
  const auto layer = numbers_or(table, "layer", 0.0);
  const auto head = numbers_or(table, "q_head", kNan);
  const auto values = table.numbers(metric.column);
  const std::vector<double> x_values = along_values(table, along);
  const auto kept = table.has("kept") ? table.numbers("kept") : std::span<const double>();
  const std::string stem = interval_stem(table, metric.column);
  const auto low = stem.empty() ? std::span<const double>() : table.numbers(stem + "_low");
  const auto high = stem.empty() ? std::span<const double>() : table.numbers(stem + "_high");
  const TextColumn* const costs = table.has_text("match") ? &table.text("match") : nullptr;
  const auto key_of = [&](std::size_t r) {
    const std::int32_t cost = costs == nullptr ? 0 : costs->codes[r];  // that was to be met
    const auto n_kinds = static_cast<std::int32_t>(kinds.categories.size());
    return BudgetKey{cost * n_kinds + (along == Along::budget ? 0 : kinds.codes[r]),
                     std::isnan(budget[r]) ? -1.0 : budget[r]};
  };
  // of one layer: trace, phase, selector, budget, layer
  using Place = std::tuple<std::string, std::int32_t, std::int32_t, BudgetKey, double>;
  const TableColumn* const traces = table.find("trace");
  const auto place_of = [&](std::size_t r) {
    return Place(traces == nullptr ? "" : traces->cell(r), phases == nullptr ? 0 : phases->codes[r],
                 selectors.codes[r], key_of(r), layer[r]);
  };
  SweepCells cells;
  std::map<Place, Mean> heads;
  for (std::size_t r : selection.rows) {
    SweepCell& cell = cells.of[selectors.at(r)][key_of(r)];
    cell.row = r;
    cell.values.push_back(values[r]);
    if (std::isnan(values[r])) continue;  // the axis is of the same rows
    cell.x.add(x_values[r]);
    if (!kept.empty()) cell.kept.add(kept[r]);
    heads[place_of(r)].add(values[r]);
  }
  if (stem.empty()) return cells;
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    if (!std::isnan(head[r]) || std::isnan(low[r])) continue;
    const auto shown = heads.find(place_of(r));
    constexpr double kRounded = 1e-5;  // a table in text has fewer digits
    if (shown == heads.end() || !(std::abs(values[r] - shown->second.value()) <=
                                  kRounded * std::max(1.0, std::abs(values[r]))))
      continue;
    cells.of[selectors.at(r)][key_of(r)].ends.add(low[r], high[r],
                                                  static_cast<std::size_t>(shown->second.n()));
    cells.has_layer_ends = true;
    heads.erase(shown);  // settled
  }
  for (std::size_t r : selection.rows) {
    if (std::isnan(values[r]) || !heads.contains(place_of(r))) continue;
    cells.of[selectors.at(r)][key_of(r)].ends.add(low[r], high[r]);
    cells.has_head_ends = cells.has_head_ends || !std::isnan(low[r]);
  }
  return cells;
}

}  // namespace kvscope::figures
