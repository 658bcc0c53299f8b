#include "analysis/base/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/base/statistics.hpp"
#include "core/base/csv_text.hpp"
#include "core/base/error.hpp"
#include "core/base/escape.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/nan.hpp"
#include "core/base/suggest.hpp"

namespace kvscope {

namespace {

/// The words of `above` (n_above lines) and `below` (n_below lines); null has empty cells.
TextColumn stacked_words(const TableColumn* above, std::size_t n_above, const TableColumn* below,
                         std::size_t n_below) {
  TextColumnBuilder words;
  for (std::size_t row = 0; row < n_above; ++row) words.add(above ? above->cell(row) : "");
  for (std::size_t row = 0; row < n_below; ++row) words.add(below ? below->cell(row) : "");
  return words.take();
}

/// Whole numbers as such: layer 3 is not 3.0.
Json json_cell(double x) {
  if (std::isfinite(x) && x == std::floor(x) && std::abs(x) < 9e15)
    return static_cast<std::int64_t>(x);
  return json_number(x);
}

}  // namespace

void TextColumnBuilder::add(std::string_view word) {
  auto found = code_of_.find(word);
  if (found == code_of_.end()) {
    found = code_of_.emplace(word, static_cast<std::int32_t>(column_.categories.size())).first;
    column_.categories.emplace_back(word);
  }
  column_.codes.push_back(found->second);
}

std::string TableColumn::cell(std::size_t row) const {
  if (is_text) return words.at(row);
  return std::isnan(numbers[row]) ? std::string() : fmt::format("{}", numbers[row]);
}

const TableColumn* Table::find(std::string_view column) const {
  const auto found = place_of_.find(column);
  return found == place_of_.end() ? nullptr : &columns_[found->second];
}

const TableColumn& Table::at(std::string_view column) const {
  if (const TableColumn* found = find(column)) return *found;
  fail(column, "");
}

bool Table::has(std::string_view column) const {
  const TableColumn* found = find(column);
  return found != nullptr && !found->is_text;
}

bool Table::has_text(std::string_view column) const {
  const TableColumn* found = find(column);
  return found != nullptr && found->is_text;
}

std::span<const double> Table::numbers(std::string_view column) const {
  if (!has(column)) fail(column, " of numbers");
  return find(column)->numbers;
}

const TextColumn& Table::text(std::string_view column) const {
  if (!has_text(column)) fail(column, " of words");
  return find(column)->words;
}

void Table::fail(std::string_view column, std::string_view kind) const {
  std::vector<std::string> names;
  for (const TableColumn& candidate : columns_) names.push_back(candidate.name);
  throw ConfigError("{}: there is no column {}{}; it has {}{}", name_, quote(column), kind,
                    some_of(names), did_you_mean(column, names));
}

TableColumn& Table::new_column(std::string typed, std::size_t length) {
  std::string name = clean_text(typed);
  if (find(name) != nullptr) throw ConfigError("{}: column {} occurs twice", name_, quote(name));
  if (!columns_.empty() && length != n_rows_)
    throw ShapeError("{}: column {} has {} rows, expected {}", name_, quote(name), length, n_rows_);
  n_rows_ = length;
  columns_.emplace_back();
  place_of_.emplace(name, columns_.size() - 1);
  columns_.back().name = std::move(name);
  return columns_.back();
}

void Table::add_numbers(std::string name, std::vector<double> values) {
  new_column(std::move(name), values.size()).numbers = std::move(values);
}

void Table::add_text(std::string name, TextColumn values) {
  TableColumn& column = new_column(std::move(name), values.codes.size());
  for (std::string& word : values.categories) word = clean_text(word);
  column.is_text = true;
  column.words = std::move(values);
}

void Table::add_text(std::string name, std::string word) {
  add_text(std::move(name), TextColumn{{std::move(word)}, std::vector<std::int32_t>(n_rows_, 0)});
}

void Table::set_units(RowUnits units) {
  if (units.values.size() != n_rows_)
    throw ShapeError("{}: units of {} rows for a table of {}", name_, units.values.size(), n_rows_);
  units_ = std::move(units);
}

void Table::append(const Table& other) {
  if (columns_.empty()) {
    units_ = other.units_;
    columns_ = other.columns_;
    place_of_ = other.place_of_;
    n_rows_ = other.n_rows_;
    return;
  }
  const std::size_t n_rows = n_rows_ + other.n_rows_;
  for (TableColumn& column : columns_) {
    const TableColumn* more = other.find(column.name);
    if (column.is_text || (more != nullptr && more->is_text)) {
      column.words = stacked_words(&column, n_rows_, more, other.n_rows_);
      column.numbers.clear();
      column.is_text = true;
      continue;
    }
    if (more != nullptr)
      column.numbers.insert(column.numbers.end(), more->numbers.begin(), more->numbers.end());
    column.numbers.resize(n_rows, kNan);
  }
  for (const TableColumn& more : other.columns_) {
    if (find(more.name) != nullptr) continue;
    TableColumn column = more;
    if (more.is_text) {
      column.words = stacked_words(nullptr, n_rows_, &more, other.n_rows_);
    } else {
      column.numbers.insert(column.numbers.begin(), n_rows_, kNan);
    }
    place_of_.emplace(column.name, columns_.size());
    columns_.push_back(std::move(column));
  }
  if (units_.column.empty() && !other.units_.column.empty()) {
    units_.column = other.units_.column;
    units_.values.resize(n_rows_);
  }
  if (!units_.column.empty()) {
    if (other.units_.column == units_.column)
      units_.values.insert(units_.values.end(), other.units_.values.begin(),
                           other.units_.values.end());
    units_.values.resize(n_rows);
  }
  n_rows_ = n_rows;
}

Table table_of_rows(const Json& rows, std::string name) {
  Table table(std::move(name));
  if (rows.empty()) return table;
  const auto fullest = std::max_element(
      rows.begin(), rows.end(), [](const Json& a, const Json& b) { return a.size() < b.size(); });
  for (const bool is_text : {true, false}) {
    for (const auto& [column, value] : fullest->items()) {
      if (value.is_string() != is_text) continue;
      TextColumnBuilder words;
      std::vector<double> numbers;
      for (const Json& row : rows) {
        if (is_text) {
          words.add(text_at(row, column));
        } else {
          numbers.push_back(number_at(row, column));
        }
      }
      if (is_text) {
        table.add_text(column, words.take());
      } else {
        table.add_numbers(column, std::move(numbers));
      }
    }
  }
  return table;
}

std::string table_csv(const Table& table, const std::string& config_hash) {
  std::string csv;
  for (const TableColumn& column : table.columns()) csv += column.name + ",";
  csv += "config_hash\n";
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    for (const TableColumn& column : table.columns())
      csv += (column.is_text ? csv_field(column.words.at(r)) : csv_number(column.numbers[r])) + ",";
    csv += config_hash + "\n";
  }
  return csv;
}

Json table_json(const Table& table, const std::string& config_hash) {
  Json rows = Json::array();
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    Json line;
    for (const TableColumn& column : table.columns())
      line[column.name] = column.is_text ? Json(column.words.at(r)) : json_cell(column.numbers[r]);
    line["config_hash"] = config_hash;
    rows.push_back(std::move(line));
  }
  return rows;
}

Json write_table(const Table& table, ResultWriter& output) {
  Json categories = Json::object();
  const auto n_rows = static_cast<Index>(table.n_rows());
  for (const TableColumn& column : table.columns()) {
    const std::string name = "rows/" + column.name;
    if (column.is_text) {
      output.put<std::int32_t>(name, {n_rows}, {"row"}, "1",
                               column.name + ", numbered as in the summary", column.words.codes);
      categories[column.name] = column.words.categories;
    } else {
      output.put<double>(name, {n_rows}, {"row"}, "1", column.name, column.numbers);
    }
  }
  return categories;
}

}  // namespace kvscope
