// What cells of a table are compared by: the numbers behind their means, unit by unit.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/base/statistics.hpp"
#include "analysis/base/table.hpp"

namespace kvscope {

/// Numbers of the units behind a cell, by the place that its rows have: the same trace, layer,
/// prompts, length. Empty if the result does not hold them.
using CellUnits = std::map<std::string, std::vector<double>>;

/// Of a simulation the units that its rows have (Table::units), of a sweep the heads of each layer.
CellUnits units_of_cell(const Table& table, const TableColumn& column,
                        std::span<const std::size_t> rows);

/// The 95 % interval of the mean of first - second over the units that both have, in the places
/// where both have as many; nothing with fewer than 2.
std::optional<Interval> paired_interval_of(const CellUnits& first, const CellUnits& second);

/// "prompts", "blocks of 64 tokens", "heads"; empty if the table holds no units of the column.
std::string unit_word(const Table& table, const TableColumn& column);

}  // namespace kvscope
