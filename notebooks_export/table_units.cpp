#include "notebooks_export/table_units.hpp"

#include <cmath>

#include "analysis/base/paired_numbers.hpp"

namespace kvscope {

namespace {

constexpr std::array<std::string_view, 15> kPlaceColumns = {
    "file",  "model", "trace", "text", "task",     "protocol", "kind", "length",
    "depth", "turn",  "phase", "seed", "n_tokens", "layer",    "texts"};

/// Where a row stands, apart from its method and what that was set to.
std::string place_of(const Table& table, std::size_t row) {
  std::string place;
  for (const std::string_view name : kPlaceColumns) {
    if (const TableColumn* column = table.find(name)) place += column->cell(row) + "/";
  }
  return place;
}

bool is_of_heads(const Table& table) {
  return table.has("q_head") && table.has("layer");
}

/// Numbers of a layer's heads, whose rows follow the layer's own.
std::vector<double> heads_below(const Table& table, const TableColumn& column, std::size_t row) {
  const auto head = table.numbers("q_head");
  const auto layer = table.numbers("layer");
  std::vector<double> numbers;
  if (!std::isnan(head[row])) return numbers;
  for (std::size_t r = row + 1; r < table.n_rows(); ++r) {
    if (std::isnan(head[r]) || layer[r] != layer[row]) break;
    numbers.push_back(column.numbers[r]);
  }
  return numbers;
}

}  // namespace

CellUnits units_of_cell(const Table& table, const TableColumn& column,
                        std::span<const std::size_t> rows) {
  CellUnits units;
  const RowUnits* const known = table.units();
  for (const std::size_t row : rows) {
    std::vector<double> numbers;
    if (known != nullptr && known->column == column.name) {
      numbers = known->values[row];
    } else if (is_of_heads(table)) {
      numbers = heads_below(table, column, row);
    }
    if (numbers.empty()) return {};
    // a second row of one place (two budgets in a cell) stands for other units
    std::string place = place_of(table, row);
    while (units.contains(place)) place += "+";
    units.emplace(std::move(place), std::move(numbers));
  }
  return units;
}

std::optional<Interval> paired_interval_of(const CellUnits& first, const CellUnits& second) {
  std::vector<double> differences;
  for (const auto& [place, numbers] : first) {
    const auto other = second.find(place);
    if (other == second.end() || other->second.size() != numbers.size()) continue;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const double difference = numbers[i] - other->second[i];
      if (!std::isnan(difference)) differences.push_back(difference);
    }
  }
  if (differences.size() < 2) return std::nullopt;
  return paired_interval(differences, 0.95);
}

std::string unit_word(const Table& table, const TableColumn& column) {
  if (table.units() != nullptr && table.units()->column == column.name)
    return column.name == "perplexity" ? "blocks of 64 tokens" : "prompts";
  return is_of_heads(table) ? "heads" : "";
}

}  // namespace kvscope
