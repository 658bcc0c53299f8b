#include "gui/model/results/result_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"

namespace kvscope::gui {

namespace {

constexpr std::string_view kRows = "rows/";

bool is_row_column(const ResultArray& array) {
  return array.name.starts_with(kRows) && array.shape.rank == 1;
}

std::string shape_text(const Shape& shape) {
  std::string text;
  for (int i = 0; i < shape.rank; ++i) text += fmt::format("{}{}", i > 0 ? " x " : "", shape[i]);
  return text.empty() ? "1" : text;
}

/// "mass" for "t0/p3/mass".
std::string last_part(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

/// A name that no column has yet.
std::string free_name(const Table& table, std::string name) {
  if (name.empty()) name = "index";
  while (table.find(name) != nullptr) name += "'";
  return name;
}

Table array_table(const ResultView& result, const std::string& name) {
  const ResultArray& spec = result.require(name);
  const Index n = spec.shape.count();
  if (n > kMostListed) {
    throw ConfigError(
        "{} holds {} numbers, more than the {} that are listed here: read it with h5py "
        "or another HDF5 reader",
        name, n, kMostListed);
  }
  Table table(fmt::format("{}: {}", result.name(), name));
  const bool has_axes = spec.axes.size() == static_cast<std::size_t>(spec.shape.rank);
  Index inner = n;  // elements that share a coordinate of the axis at hand
  for (int a = 0; a < spec.shape.rank; ++a) {
    const Index size = spec.shape[a];
    inner = size > 0 ? inner / size : 0;
    std::vector<double> at;
    if (has_axes) {
      at = result.axis(name, a);
    } else {
      for (Index i = 0; i < size; ++i) at.push_back(static_cast<double>(i));
    }
    std::vector<double> column;
    column.reserve(static_cast<std::size_t>(n));
    while (static_cast<Index>(column.size()) < n) {
      for (Index i = 0; i < size; ++i) {
        column.insert(column.end(), static_cast<std::size_t>(inner),
                      at[static_cast<std::size_t>(i)]);
      }
    }
    table.add_numbers(free_name(table, has_axes ? spec.axes[static_cast<std::size_t>(a)]
                                                : fmt::format("axis{}", a)),
                      std::move(column));
  }
  table.add_numbers(free_name(table, last_part(name)), result.read(name));
  return table;
}

}  // namespace

std::vector<TableSource> table_sources(const ResultView& result) {
  std::vector<TableSource> sources;
  const auto& summary = result.summary();
  for (const ResultArray& array : result.arrays()) {
    if (!is_row_column(array)) continue;
    sources.push_back({"rows", array.shape[0], {}, {}, {}, "one line per thing measured"});
    break;
  }
  if (sources.empty() && summary.is_object() && summary.contains("layers") &&
      summary["layers"].is_array()) {
    sources.push_back({.name = "layers",
                       .n_rows = static_cast<Index>(summary["layers"].size()),
                       .long_name = "what the summary says of each layer"});
  }
  for (const ResultArray& array : result.arrays()) {
    if (is_row_column(array)) continue;
    sources.push_back({array.name, array.shape.count(), shape_text(array.shape),
                       fmt::format("{}", fmt::join(array.axes, ", ")), array.units,
                       array.long_name});
  }
  return sources;
}

Table load_table(const ResultView& result, const std::string& source) {
  if (source == "rows" || source == "layers") return rows_of(result);
  return array_table(result, source);
}

std::size_t bytes_of(const Table& table) {
  std::size_t bytes = sizeof table;
  for (const TableColumn& column : table.columns()) {
    bytes +=
        column.numbers.size() * sizeof(double) + column.words.codes.size() * sizeof(std::int32_t);
    for (const std::string& word : column.words.categories) bytes += sizeof word + word.size();
  }
  return bytes;
}

}  // namespace kvscope::gui
