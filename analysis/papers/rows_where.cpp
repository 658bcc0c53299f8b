#include "analysis/papers/rows_where.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::papers {

namespace {

/// One part of a Value's `where`.
struct Condition {
  std::string column;
  std::string op;  // = != >= <=
  std::string value;
};

std::vector<Condition> conditions_of(const std::string& where) {
  std::vector<Condition> conditions;
  for (std::size_t begin = 0; begin < where.size();) {
    const std::size_t end = std::min(where.find(';', begin), where.size());
    const std::string part = where.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t at = part.find_first_of("!<>=");
    if (at == part.npos) throw ConfigError("\"{}\": expected a comparison", part);
    const std::size_t after = part[at] == '=' ? at + 1 : at + 2;
    conditions.push_back({part.substr(0, at), part.substr(at, after - at), part.substr(after)});
  }
  return conditions;
}

bool matches(const Table& table, std::size_t row, const Condition& condition) {
  const TableColumn* column = table.find(condition.column);
  if (column == nullptr) {  // CSV leaves out nothing, other tasks' rows have fewer columns
    return condition.op == "=" && condition.value.empty();
  }
  const std::string cell = column->cell(row);
  if (condition.op == "=" || condition.op == "!=") {
    const auto number = number_from<double>(condition.value);
    const auto found = number_from<double>(cell);
    const bool equal = number && found ? *number == *found : cell == condition.value;
    return equal == (condition.op == "=");
  }
  const auto number = number_from<double>(condition.value);
  const auto found = number_from<double>(cell);
  if (!number || !found) return false;
  return condition.op == ">=" ? *found >= *number : *found <= *number;
}

}  // namespace

std::vector<std::size_t> rows_where(const Table& table, const std::string& where) {
  const auto conditions = conditions_of(where);
  std::vector<std::size_t> rows;
  for (std::size_t row = 0; row < table.n_rows(); ++row) {
    if (std::ranges::all_of(conditions, [&](const Condition& c) { return matches(table, row, c); }))
      rows.push_back(row);
  }
  return rows;
}

}  // namespace kvscope::papers
