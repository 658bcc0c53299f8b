#include "core/base/csv_text.hpp"

#include <algorithm>

#include "core/base/number_text.hpp"

namespace kvscope {

namespace {

/// True for what a spreadsheet would calculate, and for such text behind apostrophes.
bool is_formula_like(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of('\''), text.size()));
  if (text.empty()) return false;
  if (std::string_view("=@\t\r\n").find(text[0]) != std::string_view::npos) return true;
  if (text[0] != '+' && text[0] != '-') return false;
  return text.size() > 1 && !number_from<double>(text[0] == '+' ? text.substr(1) : text);
}

}  // namespace

std::string csv_field(std::string_view text) {
  const std::string shown = is_formula_like(text) ? "'" + std::string(text) : std::string(text);
  if (shown.find_first_of(",\"\r\n") == std::string::npos) return shown;
  std::string quoted = "\"";
  for (const char c : shown) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + "\"";
}

std::string csv_text_of(std::string_view field) {
  const bool is_marked = field.starts_with('\'') && is_formula_like(field);
  return std::string(is_marked ? field.substr(1) : field);
}

}  // namespace kvscope
