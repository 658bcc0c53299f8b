#include "analysis/figures/result_view.hpp"

#include <fmt/format.h>

#include "analysis/base/read_table.hpp"
#include "analysis/simulate/row_units.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"

namespace kvscope {

namespace {

constexpr std::string_view kRows = "rows/";

TextColumn words_of(const std::vector<double>& codes, const Json& categories,
                    const std::string& where) {
  TextColumn words;
  for (const auto& category : categories) {
    if (!category.is_string()) throw FormatError("{}: expected categories that are words", where);
    words.categories.push_back(category.get<std::string>());
  }
  for (const double code : codes) {
    if (!(code >= 0.0 && code < static_cast<double>(words.categories.size()))) {
      throw FormatError("{}: {} is not the number of a category, there are {}", where, code,
                        words.categories.size());
    }
    words.codes.push_back(static_cast<std::int32_t>(code));
  }
  return words;
}

/// What the rows of a simulation are means of, where its file has it for all of them.
void add_units(const ResultView& result, Table& table) {
  const ResultArray* const array = result.find(kRowUnits);
  const std::string column = table.has("accuracy") ? "accuracy" : "perplexity";
  if (array == nullptr || array->shape.rank != 2 || !table.has(column)) return;
  if (array->shape[0] != static_cast<Index>(table.n_rows())) return;
  const std::vector<double> all = result.read(kRowUnits);
  const auto width = static_cast<std::ptrdiff_t>(array->shape[1]);
  RowUnits units{column, {}};
  for (auto from = all.begin(); units.values.size() < table.n_rows(); from += width)
    units.values.emplace_back(from, from + width);
  table.set_units(std::move(units));
}

}  // namespace

Table rows_of(const ResultView& result) {
  Table table(result.name());
  const auto& summary = result.summary();
  const auto categories = summary.is_object() && summary.contains("categories")
                              ? summary["categories"]
                              : Json::object();
  for (const ResultArray& array : result.arrays()) {
    if (!array.name.starts_with(kRows) || array.shape.rank != 1) continue;
    const std::string column = array.name.substr(kRows.size());
    std::vector<double> values = result.read(array.name);
    if (categories.is_object() && categories.contains(column) && categories[column].is_array()) {
      table.add_text(column, words_of(values, categories[column],
                                      fmt::format("{}: {}", result.name(), array.name)));
    } else {
      table.add_numbers(column, std::move(values));
    }
  }
  if (!table.columns().empty()) {
    add_units(result, table);
    return table;
  }
  if (!summary.is_object() || !summary.contains("layers")) {
    throw FormatError("{}: this result of kind {} holds no table of rows", result.name(),
                      result.info().kind);
  }
  return table_from_json(nlohmann::json(summary), result.name());
}

void table_to_result(const Table& table, const ResultInfo& info, ResultWriter& output,
                     const std::function<void(ResultWriter&)>& more) {
  output.begin(info);
  const Json categories = write_table(table, output);
  if (more) more(output);
  output.finish({{"categories", categories}});
}

Table figures::rows_in(const Table& table, std::span<const std::size_t> rows) {
  Table part(table.name());
  for (const TableColumn& column : table.columns()) {
    std::vector<double> numbers;
    TextColumnBuilder words;
    for (const std::size_t r : rows)
      column.is_text ? words.add(column.words.at(r)) : numbers.push_back(column.numbers[r]);
    column.is_text ? part.add_text(column.name, words.take())
                   : part.add_numbers(column.name, std::move(numbers));
  }
  return part;
}

}  // namespace kvscope
