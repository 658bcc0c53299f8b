#include "notebooks_export/table_fields.hpp"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "analysis/base/mapped.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/lists.hpp"
#include "core/base/nan.hpp"
#include "core/selectors/method_spec.hpp"

namespace kvscope {

namespace {

bool is_method_column(std::string_view name) {
  return name == "selector" || name == "method";
}

bool is_length_column(std::string_view name) {
  return name == "length" || name == "n_tokens" || name == "tokens" || name == "context";
}

/// "64", "8 pages", "25%", "p = 0.95".
std::string budget_text(double budget, std::string_view kind) {
  if (kind == "ratio") return fmt::format("{:.4g}%", 100.0 * budget);
  if (kind == "p") return fmt::format("p = {}", budget);
  if (kind == "pages") return fmt::format("{} pages", budget);
  return fmt::format("{}", budget);
}

std::string length_text(double length) {
  const bool is_binary = length >= 1024 && std::fmod(length, 1024.0) == 0.0;
  return is_binary ? fmt::format("{}k", length / 1024.0) : fmt::format("{}", length);
}

/// "quest:page-size=32" to "Quest (page-size=32)" by the names of the spec.
std::string named(const std::string& text, const std::map<std::string, std::string>& names) {
  if (const auto found = names.find(text); found != names.end()) return found->second;
  const std::string name(method_name(text));
  const auto found = names.find(name);
  if (name == text || found == names.end()) return text;
  return fmt::format("{} ({})", found->second, text.substr(name.size() + 1));
}

}  // namespace

RowRole role_of_method(std::string_view selector) {
  if (selector == "full" || selector == "dense" || selector == "greedy") return RowRole::full;
  if (is_oracle(selector)) return RowRole::oracle;
  for (const SelectorEntry& entry : selector_registry().entries()) {
    if (entry.name == selector && entry.family == MethodFamily::controls) return RowRole::control;
  }
  return RowRole::method;
}

std::optional<TableField> TableField::bind(const Table& table, std::string_view name,
                                           const std::vector<std::size_t>& rows,
                                           const TableSpec& spec) {
  const bool optional = name.ends_with('?');
  if (optional) name.remove_suffix(1);
  TableField field(spec);
  field.name_ = name;
  for (const std::string& alternatives : split_words(name, '+')) {
    Part part;
    const std::vector<std::string> names = split_words(alternatives, '|');
    for (const std::string& candidate : names) {
      if (!part.column) part.column = table.find(candidate);
    }
    if (!part.column && optional) return std::nullopt;
    if (!part.column) part.column = &table.at(names.front());  // says what there is instead
    if (part.column->name == "budget") part.unit = table.find("budget_kind");
    if (part.column->name == "match") part.unit = table.find("knob");
    field.parts_.push_back(part);
  }
  if (!optional) return field;
  std::set<std::string> texts;
  for (const std::size_t row : rows) texts.insert(field.key(row).text);
  texts.erase("");  // a row without one belongs to all
  if (texts.size() < 2) return std::nullopt;
  return field;
}

std::string TableField::part_text(const Part& part, std::size_t row) const {
  const TableColumn& column = *part.column;
  // without a setting a method's cost is the same whatever is to be met
  if (column.name == "match" && part.unit && part.unit->cell(row).empty()) return "";
  if (column.is_text) return named(column.words.at(row), spec_->names);
  const double number = column.numbers[row];
  if (std::isnan(number)) return "";
  if (column.name == "budget")
    return budget_text(number, part.unit ? part.unit->cell(row) : "tokens");
  if (spec_->binary_lengths && is_length_column(column.name)) return length_text(number);
  return fmt::format("{}", number);
}

FieldKey TableField::key(std::size_t row) const {
  FieldKey key;
  key.number = kNan;
  const Part& last = parts_.back();
  if (!last.column->is_text) key.number = last.column->numbers[row];
  if (last.unit && !std::isnan(key.number)) key.unit = last.unit->cell(row);
  key.text = part_text(parts_.front(), row);
  std::string rest;
  for (std::size_t i = 1; i < parts_.size(); ++i) {
    const std::string text = part_text(parts_[i], row);
    if (!text.empty()) rest += (rest.empty() ? "" : ", ") + text;
  }
  if (parts_.size() > 1) key.number = kNan;  // a composite keeps the order of the rows
  if (!rest.empty()) key.text += fmt::format(" ({})", rest);
  return key;
}

std::string TableField::title() const {
  if (const auto found = spec_->row_titles.find(name_); found != spec_->row_titles.end())
    return found->second;
  const std::string& name = parts_.front().column->name;
  if (is_method_column(name)) return "Method";
  if (is_length_column(name)) return "Length";
  if (name == "match") return "Cost";
  std::string title = name;
  for (char& c : title) c = c == '_' ? ' ' : c;
  if (title.front() >= 'a' && title.front() <= 'z') title.front() += 'A' - 'a';
  return title;
}

std::vector<std::string> TableField::columns() const {
  return mapped<std::string>(parts_, [&](const Part& part) { return part.column->name; });
}

bool TableField::is_method() const {
  for (const Part& part : parts_) {
    if (is_method_column(part.column->name)) return true;
  }
  return false;
}

std::string TableField::method(std::size_t row) const {
  for (const Part& part : parts_) {
    if (!is_method_column(part.column->name)) continue;
    const std::string text = part.column->cell(row);
    return std::string(method_name(text));
  }
  return "";
}

}  // namespace kvscope
