// A table in memory: columns of numbers or words, one line per thing measured.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor/tensor.hpp"

namespace kvscope {

/// Words by number: a million lines with a few different words stay small.
struct TextColumn {
  std::vector<std::string> categories;
  std::vector<std::int32_t> codes;  // [n_rows] into categories
  const std::string& at(std::size_t row) const {
    return categories[static_cast<std::size_t>(codes[row])];
  }
};

class Table {
 public:
  /// `name` is what messages call it: a file, usually.
  explicit Table(std::string name) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  std::size_t n_rows() const { return n_rows_; }
  std::vector<std::string> column_names() const;
  bool has(std::string_view column) const;
  bool has_text(std::string_view column) const;

  /// Throw ShapeError if the column has another length than the others, ConfigError if there is one
  /// of that name.
  void add_numbers(std::string name, std::vector<double> values);
  void add_text(std::string name, TextColumn values);

  /// Throw ConfigError, naming the columns there are, for an unknown column or one of the other
  /// type.
  std::span<const double> numbers(std::string_view column) const;
  const TextColumn& text(std::string_view column) const;

 private:
  void check_new(const std::string& name, std::size_t length);
  [[noreturn]] void fail(std::string_view column, std::string_view wanted) const;

  std::string name_;
  std::size_t n_rows_ = 0;
  std::vector<std::pair<std::string, std::vector<double>>> numbers_;
  std::vector<std::pair<std::string, TextColumn>> texts_;
};

/// CSV with a header line; fields may be quoted. A column whose fields are all numbers or empty is
/// one of numbers (empty = NaN), any other one of words. Throws FormatError naming `where` and the
/// line for rows of another length or no header.
Table table_from_csv(std::string_view csv, const std::string& where);

/// A JSON list of objects with the same keys: numbers, null (NaN), words. Throws FormatError.
Table table_from_json(const nlohmann::ordered_json& rows, const std::string& where);

}  // namespace kvscope
