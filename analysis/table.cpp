#include "analysis/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>

#include "core/base/error.hpp"

namespace kvscope {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class Columns>
auto find_in(Columns& columns, std::string_view name) {
  return std::find_if(columns.begin(), columns.end(),
                      [&](const auto& column) { return column.first == name; });
}

/// A column that is read field by field: numbers as long as all fields are.
class ColumnReader {
 public:
  void add(std::string_view field) {
    if (is_numbers_) {
      double value = kNan;
      const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
      const bool whole = error == std::errc{} && end == field.data() + field.size();
      if (field.empty() || whole) {
        numbers_.push_back(field.empty() ? kNan : value);
        return;
      }
      turn_to_words();
    }
    add_word(field);
  }

  void store(std::string name, Table& table) {
    if (is_numbers_) {
      table.add_numbers(std::move(name), std::move(numbers_));
    } else {
      table.add_text(std::move(name), std::move(words_));
    }
  }

 private:
  void add_word(std::string_view field) {
    const auto [it, is_new] =
        code_of_.try_emplace(std::string(field), static_cast<std::int32_t>(code_of_.size()));
    if (is_new) words_.categories.emplace_back(field);
    words_.codes.push_back(it->second);
  }
  /// Numbers seen so far were words in disguise ("0", "all").
  void turn_to_words() {
    is_numbers_ = false;
    for (double number : numbers_) {
      add_word(number == number ? fmt::format("{}", number) : std::string());
    }
    numbers_.clear();
  }

  bool is_numbers_ = true;
  std::vector<double> numbers_;
  TextColumn words_;
  std::map<std::string, std::int32_t, std::less<>> code_of_;
};

/// The next field of a CSV text; `at` moves past it and its separator. Sets `is_last` at a line's
/// end.
std::string_view next_field(std::string_view csv, std::size_t& at, bool& is_last,
                            std::string& unquoted) {
  std::string_view field;
  if (at < csv.size() && csv[at] == '"') {
    unquoted.clear();
    for (++at; at < csv.size(); ++at) {
      if (csv[at] != '"') {
        unquoted += csv[at];
      } else if (at + 1 < csv.size() && csv[at + 1] == '"') {
        unquoted += csv[at++];
      } else {
        ++at;
        break;
      }
    }
    field = unquoted;
  } else {
    const std::size_t end = std::min(csv.find_first_of(",\r\n", at), csv.size());
    field = csv.substr(at, end - at);
    at = end;
  }
  is_last = at >= csv.size() || csv[at] != ',';
  if (at < csv.size() && csv[at] == '\r') ++at;
  if (at < csv.size() && (csv[at] == ',' || csv[at] == '\n')) ++at;
  return field;
}

}  // namespace

std::vector<std::string> Table::column_names() const {
  std::vector<std::string> names;
  for (const auto& [name, column] : texts_) names.push_back(name);
  for (const auto& [name, column] : numbers_) names.push_back(name);
  return names;
}

bool Table::has(std::string_view column) const {
  return find_in(numbers_, column) != numbers_.end();
}

bool Table::has_text(std::string_view column) const {
  return find_in(texts_, column) != texts_.end();
}

void Table::check_new(const std::string& name, std::size_t length) {
  if (has(name) || has_text(name)) {
    throw ConfigError(fmt::format("{}: there are two columns \"{}\"", name_, name));
  }
  const bool is_first = numbers_.empty() && texts_.empty();
  if (!is_first && length != n_rows_) {
    throw ShapeError(
        fmt::format("{}: column \"{}\" has {} rows, expected {}", name_, name, length, n_rows_));
  }
  n_rows_ = length;
}

void Table::add_numbers(std::string name, std::vector<double> values) {
  check_new(name, values.size());
  numbers_.emplace_back(std::move(name), std::move(values));
}

void Table::add_text(std::string name, TextColumn values) {
  check_new(name, values.codes.size());
  texts_.emplace_back(std::move(name), std::move(values));
}

void Table::fail(std::string_view column, std::string_view wanted) const {
  throw ConfigError(fmt::format("{}: there is no column \"{}\" of {}; it has {}", name_, column,
                                wanted, fmt::join(column_names(), ", ")));
}

std::span<const double> Table::numbers(std::string_view column) const {
  const auto it = find_in(numbers_, column);
  if (it == numbers_.end()) fail(column, "numbers");
  return it->second;
}

const TextColumn& Table::text(std::string_view column) const {
  const auto it = find_in(texts_, column);
  if (it == texts_.end()) fail(column, "words");
  return it->second;
}

Table table_from_csv(std::string_view csv, const std::string& where) {
  if (csv.starts_with("\xEF\xBB\xBF")) csv.remove_prefix(3);
  std::size_t at = 0;
  std::string unquoted;
  std::vector<std::string> names;
  for (bool is_last = false; !is_last && at < csv.size();) {
    names.emplace_back(next_field(csv, at, is_last, unquoted));
  }
  const bool has_empty =
      std::any_of(names.begin(), names.end(), [](const std::string& name) { return name.empty(); });
  if (names.empty() || has_empty) {
    throw FormatError(fmt::format("{}: expected CSV with a header line of column names", where));
  }
  std::vector<ColumnReader> columns(names.size());
  for (std::size_t line = 2; at < csv.size(); ++line) {
    std::size_t n = 0;
    for (bool is_last = false; !is_last; ++n) {
      const std::string_view field = next_field(csv, at, is_last, unquoted);
      if (n < columns.size()) columns[n].add(field);
    }
    if (n != columns.size()) {
      throw FormatError(
          fmt::format("{}, line {}: {} fields, expected {}", where, line, n, columns.size()));
    }
  }
  Table table(where);
  for (std::size_t c = 0; c < columns.size(); ++c) columns[c].store(names[c], table);
  return table;
}

Table table_from_json(const nlohmann::ordered_json& rows, const std::string& where) {
  if (!rows.is_array() || rows.empty() || !rows[0].is_object()) {
    throw FormatError(fmt::format("{}: expected a list of rows, each an object", where));
  }
  Table table(where);
  for (const auto& [key, first] : rows[0].items()) {
    ColumnReader column;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const bool is_there = rows[i].is_object() && rows[i].contains(key);
      if (!is_there || rows[i][key].is_structured()) {
        throw FormatError(fmt::format("{}: rows[{}] has no plain value \"{}\"", where, i, key));
      }
      const auto& value = rows[i][key];
      column.add(value.is_null()     ? std::string()
                 : value.is_string() ? value.template get<std::string>()
                                     : value.dump());
    }
    column.store(key, table);
  }
  return table;
}

}  // namespace kvscope
