#include "analysis/base/read_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/csv_text.hpp"
#include "core/base/error.hpp"
#include "core/base/escape.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/nan.hpp"
#include "core/base/number_text.hpp"

namespace kvscope {

namespace {

/// The number that the whole field is; NaN for an empty one; nothing for text.
std::optional<double> number_of(std::string_view field) {
  return field.empty() ? kNan : number_from<double>(field);
}

/// Walks over the fields of a CSV text, line by line.
class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& where) : text_(text), where_(where) {
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;
  }

  /// The next record's fields; false at the end. Empty lines are skipped.
  bool next(std::vector<std::string>& fields) {
    while (at_ < text_.size() && (text_[at_] == '\n' || text_[at_] == '\r'))
      line_ += text_[at_++] == '\n';
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
    throw FormatError("{}: line {}: {}", where_, record_line_, sentence);
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
const nlohmann::json& row_list(const nlohmann::json& json, const std::string& where) {
  if (json.is_array()) return json;
  if (json.is_object()) {
    for (const char* key : {"rows", "layers"}) {
      if (json.contains(key) && json[key].is_array()) return json[key];
    }
    if (json.contains("summary") && json["summary"].is_object())
      return row_list(json["summary"], where);
  }
  throw FormatError(
      "{}: expected a list of rows, or an object with \"rows\" or \"layers\", found {}", where,
      describe(json));
}

}  // namespace

Table table_from_csv(std::string_view text, const std::string& where) {
  CsvReader reader(text, where);
  std::vector<std::string> header;
  if (!reader.next(header)) throw FormatError("{}: empty, expected a CSV header", where);
  for (std::string& name : header) name = clean_text(csv_text_of(name));
  std::set<std::string_view> names;
  for (const std::string& name : header) {
    if (!names.insert(name).second) reader.fail(fmt::format("column {} occurs twice", quote(name)));
  }

  // Columns start as numbers; the first cell that is none turns its column into words, for which
  // the text is read once more: "0.50" stays "0.50" there.
  std::vector<bool> is_text(header.size(), false);
  // "12345e67" is no number there.
  for (std::size_t c = 0; c < header.size(); ++c) is_text[c] = header[c].ends_with("hash");
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
  std::vector<TextColumnBuilder> words(header.size());
  for (std::size_t c = 0; c < header.size(); ++c) {
    if (!is_text[c]) numbers[c].reserve(n_rows);
  }
  CsvReader again(text, where);
  again.next(fields);
  while (again.next(fields)) {
    for (std::size_t c = 0; c < fields.size(); ++c) {
      if (is_text[c]) {
        words[c].add(csv_text_of(fields[c]));
      } else {
        numbers[c].push_back(*number_of(fields[c]));
      }
    }
  }
  Table table(where);
  for (std::size_t c = 0; c < header.size(); ++c) {
    if (is_text[c]) {
      table.add_text(header[c], words[c].take());
    } else {
      table.add_numbers(header[c], std::move(numbers[c]));
    }
  }
  return table;
}

Table table_from_json(const nlohmann::json& json, const std::string& where) {
  const nlohmann::json& rows = row_list(json, where);
  std::map<std::string, bool> is_text;  // of every flat key
  std::size_t n_values = 0;
  for (const nlohmann::json& row : rows) {
    if (!row.is_object())
      throw FormatError("{}: expected rows that are objects, found {}", where, describe(row));
    for (const auto& [key, value] : row.items()) {
      if (value.is_structured()) continue;
      bool& text = is_text[key];
      text = text || value.is_string();
      ++n_values;
    }
  }
  // Rows that share no fields would make a table that is empty but for a diagonal, and huge.
  constexpr std::size_t kMostCells = 10'000'000;
  if (is_text.size() > kMostCells / std::max<std::size_t>(rows.size(), 1) &&
      is_text.size() * rows.size() / 100 > n_values) {
    throw FormatError(
        "{}: {} rows with {} different fields, but only {} values: these are no rows of one table",
        where, rows.size(), is_text.size(), n_values);
  }
  Table table(where);
  for (const auto& [key, text] : is_text) {
    std::vector<double> numbers;
    TextColumnBuilder words;
    for (const nlohmann::json& row : rows) {
      const auto value = row.find(key);
      const bool empty = value == row.end() || value->is_null() || value->is_structured();
      if (text) {
        words.add(empty                ? std::string()
                  : value->is_string() ? value->get<std::string>()
                                       : value->dump());
      } else {
        numbers.push_back(empty                 ? kNan
                          : value->is_boolean() ? static_cast<double>(value->get<bool>())
                                                : value->get<double>());
      }
    }
    if (text) {
      table.add_text(key, words.take());
    } else {
      table.add_numbers(key, std::move(numbers));
    }
  }
  return table;
}

}  // namespace kvscope
