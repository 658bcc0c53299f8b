#include "notebooks_export/tidy_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"

namespace kvscope {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// The number that the whole field is; NaN for an empty one; nothing for text.
std::optional<double> number_of(std::string_view field) {
  if (field.empty()) return kNan;
  double value = 0.0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc{} || end != field.data() + field.size()) return std::nullopt;
  return value;
}

/// Walks over the fields of a CSV text, line by line.
class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& where) : text_(text), where_(where) {
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;
  }

  /// The next record's fields; false at the end. Empty lines are skipped.
  bool next(std::vector<std::string>& fields) {
    while (at_ < text_.size() && (text_[at_] == '\n' || text_[at_] == '\r')) {
      line_ += text_[at_++] == '\n';
    }
    fields.clear();
    if (at_ >= text_.size()) return false;
    record_line_ = line_;
    for (;;) {
      const bool is_quoted = at_ < text_.size() && text_[at_] == '"';
      fields.push_back(is_quoted ? quoted_field() : plain_field());
      if (at_ >= text_.size()) return true;
      const char separator = text_[at_++];
      if (separator == ',') {
        if (at_ < text_.size()) continue;
        fields.emplace_back();
        return true;
      }
      if (separator == '\r' && at_ < text_.size() && text_[at_] == '\n') ++at_;
      ++line_;
      return true;
    }
  }

  [[noreturn]] void fail(const std::string& sentence) const {
    throw FormatError(fmt::format("{}: line {}: {}", where_, record_line_, sentence));
  }

 private:
  std::string plain_field() {
    const std::size_t end = std::min(text_.find_first_of(",\r\n", at_), text_.size());
    std::string field(text_.substr(at_, end - at_));
    at_ = end;
    return field;
  }

  std::string quoted_field() {
    std::string field;
    for (++at_;;) {
      if (at_ >= text_.size()) fail("a quoted field has no closing quote");
      const char c = text_[at_++];
      line_ += c == '\n';
      if (c != '"') {
        field += c;
      } else if (at_ < text_.size() && text_[at_] == '"') {
        field += text_[at_++];
      } else {
        break;
      }
    }
    if (at_ < text_.size() && std::string_view(",\r\n").find(text_[at_]) == std::string_view::npos)
      fail("expected a comma or the line's end after a quoted field");
    return field;
  }

  std::string_view text_;
  const std::string& where_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
  std::size_t record_line_ = 1;
};

/// The list of rows in a JSON result.
const nlohmann::json& rows_of(const nlohmann::json& json, const std::string& where) {
  if (json.is_array()) return json;
  if (json.is_object()) {
    for (const char* key : {"rows", "layers"}) {
      if (json.contains(key) && json[key].is_array()) return json[key];
    }
    if (json.contains("summary") && json["summary"].is_object())
      return rows_of(json["summary"], where);
  }
  throw FormatError(
      fmt::format("{}: expected a list of rows, or an object with \"rows\" or \"layers\", found {}",
                  where, describe(json)));
}

}  // namespace

const TidyColumn* TidyTable::find(std::string_view name) const {
  for (const TidyColumn& column : columns_) {
    if (column.name == name) return &column;
  }
  return nullptr;
}

const TidyColumn& TidyTable::at(std::string_view name) const {
  if (const TidyColumn* column = find(name)) return *column;
  std::vector<std::string> names;
  for (const TidyColumn& column : columns_) names.push_back(column.name);
  throw ConfigError(
      fmt::format("there is no column {}; the result has {}", quote(name), fmt::join(names, ", ")));
}

TidyColumn& TidyTable::new_column(std::string name, std::size_t n_rows) {
  if (find(name)) throw ConfigError(fmt::format("column {} occurs twice", quote(name)));
  if (!columns_.empty() && n_rows != n_rows_) {
    throw ShapeError(fmt::format("column {}: {} rows, expected {}", quote(name), n_rows, n_rows_));
  }
  n_rows_ = n_rows;
  columns_.push_back({});
  columns_.back().name = std::move(name);
  return columns_.back();
}

void TidyTable::add(std::string name, std::vector<double> numbers) {
  new_column(std::move(name), numbers.size()).numbers = std::move(numbers);
}

void TidyTable::add(std::string name, std::vector<std::string> texts) {
  TidyColumn& column = new_column(std::move(name), texts.size());
  column.is_text = true;
  column.texts = std::move(texts);
}

void TidyTable::append(const TidyTable& other) {
  if (columns_.empty()) {
    *this = other;
    return;
  }
  const std::size_t n_rows = n_rows_ + other.n_rows_;
  for (TidyColumn& column : columns_) {
    const TidyColumn* more = other.find(column.name);
    if (!column.is_text && more && more->is_text) {  // text wins: numbers are written out
      for (std::size_t row = 0; row < n_rows_; ++row) column.texts.push_back(text(column, row));
      column.numbers.clear();
      column.is_text = true;
    }
    if (column.is_text) {
      for (std::size_t row = 0; more && row < other.n_rows_; ++row)
        column.texts.push_back(other.text(*more, row));
      column.texts.resize(n_rows);
    } else {
      if (more)
        column.numbers.insert(column.numbers.end(), more->numbers.begin(), more->numbers.end());
      column.numbers.resize(n_rows, kNan);
    }
  }
  for (const TidyColumn& more : other.columns_) {
    if (find(more.name)) continue;
    TidyColumn column = more;
    column.numbers.insert(column.numbers.begin(), more.is_text ? 0 : n_rows_, kNan);
    column.texts.insert(column.texts.begin(), more.is_text ? n_rows_ : 0, std::string());
    columns_.push_back(std::move(column));
  }
  n_rows_ = n_rows;
}

std::string TidyTable::text(const TidyColumn& column, std::size_t row) const {
  if (column.is_text) return column.texts[row];
  const double value = column.numbers[row];
  return std::isnan(value) ? std::string() : fmt::format("{}", value);
}

TidyTable tidy_table_from_csv(std::string_view text, const std::string& where) {
  CsvReader reader(text, where);
  std::vector<std::string> header;
  if (!reader.next(header))
    throw FormatError(fmt::format("{}: empty, expected a CSV header", where));

  // Columns start as numbers; the first cell that is none turns its column into text, for which the
  // file is read once more: tables are long, and text cells cost ten times the memory.
  std::vector<bool> is_text(header.size(), false);
  for (std::size_t c = 0; c < header.size(); ++c)
    is_text[c] = header[c].ends_with("hash");  // "12345e67" is no number there
  std::vector<std::string> fields;
  std::size_t n_rows = 0;
  while (reader.next(fields)) {
    if (fields.size() != header.size()) {
      reader.fail(fmt::format("expected {} fields as in the header, found {}", header.size(),
                              fields.size()));
    }
    for (std::size_t c = 0; c < fields.size(); ++c) {
      if (!is_text[c] && !number_of(fields[c])) is_text[c] = true;
    }
    ++n_rows;
  }
  std::vector<std::vector<double>> numbers(header.size());
  std::vector<std::vector<std::string>> texts(header.size());
  for (std::size_t c = 0; c < header.size(); ++c) {
    is_text[c] ? texts[c].reserve(n_rows) : numbers[c].reserve(n_rows);
  }
  CsvReader again(text, where);
  again.next(fields);
  while (again.next(fields)) {
    for (std::size_t c = 0; c < fields.size(); ++c) {
      if (is_text[c]) {
        texts[c].push_back(std::move(fields[c]));
      } else {
        numbers[c].push_back(*number_of(fields[c]));
      }
    }
  }
  TidyTable table;
  for (std::size_t c = 0; c < header.size(); ++c) {
    if (table.find(header[c]))
      throw FormatError(fmt::format("{}: column {} occurs twice", where, quote(header[c])));
    if (is_text[c]) {
      table.add(header[c], std::move(texts[c]));
    } else {
      table.add(header[c], std::move(numbers[c]));
    }
  }
  return table;
}

TidyTable tidy_table_from_json(const nlohmann::json& json, const std::string& where) {
  const nlohmann::json& rows = rows_of(json, where);
  std::map<std::string, bool> is_text;  // of every flat key
  for (const nlohmann::json& row : rows) {
    if (!row.is_object())
      throw FormatError(
          fmt::format("{}: expected rows that are objects, found {}", where, describe(row)));
    for (const auto& [key, value] : row.items()) {
      if (!value.is_structured()) is_text[key] = is_text[key] || value.is_string();
    }
  }
  TidyTable table;
  for (const auto& [key, text] : is_text) {
    std::vector<double> numbers;
    std::vector<std::string> texts;
    for (const nlohmann::json& row : rows) {
      const auto value = row.find(key);
      const bool empty = value == row.end() || value->is_null() || value->is_structured();
      if (text) {
        texts.push_back(empty                ? ""
                        : value->is_string() ? value->get<std::string>()
                                             : value->dump());
      } else {
        numbers.push_back(empty                 ? kNan
                          : value->is_boolean() ? static_cast<double>(value->get<bool>())
                                                : value->get<double>());
      }
    }
    if (text) {
      table.add(key, std::move(texts));
    } else {
      table.add(key, std::move(numbers));
    }
  }
  return table;
}

}  // namespace kvscope
