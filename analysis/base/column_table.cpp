#include "analysis/base/column_table.hpp"

#include <cmath>
#include <utility>

#include "analysis/base/mapped.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/base/table.hpp"
#include "core/base/csv_text.hpp"
#include "core/base/json.hpp"

namespace kvscope {

namespace {

/// Whole numbers as such: layer 3 is not 3.0.
Json json_cell(double x) {
  if (std::isfinite(x) && x == std::floor(x) && std::abs(x) < 9e15)
    return static_cast<std::int64_t>(x);
  return json_number(x);
}

}  // namespace

std::string table_csv(const ColumnTable& table, const std::string& config_hash) {
  std::string csv;
  for (const std::string& name : table.text_names) csv += name + ",";
  for (const std::string& name : table.number_names) csv += name + ",";
  csv += "config_hash\n";
  for (const ColumnTable::Row& row : table.rows) {
    for (const std::string& text : row.texts) csv += csv_field(text) + ",";
    for (double number : row.numbers) csv += csv_number(number) + ",";
    csv += config_hash + "\n";
  }
  return csv;
}

Json table_json(const ColumnTable& table, const std::string& config_hash) {
  Json rows = Json::array();
  for (const ColumnTable::Row& row : table.rows) {
    Json line;
    for (std::size_t c = 0; c < row.texts.size(); ++c) line[table.text_names[c]] = row.texts[c];
    for (std::size_t c = 0; c < row.numbers.size(); ++c)
      line[table.number_names[c]] = json_cell(row.numbers[c]);
    line["config_hash"] = config_hash;
    rows.push_back(std::move(line));
  }
  return rows;
}

Json write_table(const ColumnTable& table, ResultWriter& output) {
  Json categories;
  const auto n_rows = static_cast<Index>(table.rows.size());
  for (std::size_t c = 0; c < table.text_names.size(); ++c) {
    TextColumnBuilder words;
    for (const ColumnTable::Row& row : table.rows) words.add(row.texts[c]);
    const TextColumn column = words.take();
    const std::string& name = table.text_names[c];
    output.put<std::int32_t>("rows/" + name, {n_rows}, {"row"}, "1",
                             name + ", numbered as in the summary", column.codes);
    categories[name] = column.categories;
  }
  for (std::size_t c = 0; c < table.number_names.size(); ++c) {
    const auto values =
        mapped<double>(table.rows, [&](const ColumnTable::Row& row) { return row.numbers[c]; });
    const std::string& name = table.number_names[c];
    output.put<double>("rows/" + name, {n_rows}, {"row"}, "1", name, values);
  }
  return categories;
}

}  // namespace kvscope
