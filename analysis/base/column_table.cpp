#include "analysis/base/column_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "analysis/base/statistics.hpp"
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
    std::vector<std::string> names;
    std::vector<std::int32_t> codes;
    for (const ColumnTable::Row& row : table.rows) {
      auto it = std::ranges::find(names, row.texts[c]);
      if (it == names.end()) it = names.insert(names.end(), row.texts[c]);
      codes.push_back(static_cast<std::int32_t>(it - names.begin()));
    }
    const std::string name = fmt::format("rows/{}", table.text_names[c]);
    output.declare({name,
                    ResultType::i32,
                    {n_rows},
                    {"row"},
                    "1",
                    fmt::format("{}, numbered as in the summary", table.text_names[c])});
    output.write<std::int32_t>(name, 0, codes);
    categories[table.text_names[c]] = names;
  }
  for (std::size_t c = 0; c < table.number_names.size(); ++c) {
    std::vector<double> values;
    for (const ColumnTable::Row& row : table.rows) values.push_back(row.numbers[c]);
    const std::string name = fmt::format("rows/{}", table.number_names[c]);
    output.declare({name, ResultType::f64, {n_rows}, {"row"}, "1", table.number_names[c]});
    output.write<double>(name, 0, values);
  }
  return categories;
}

}  // namespace kvscope
