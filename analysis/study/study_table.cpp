#include "analysis/study/study_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "analysis/base/read_table.hpp"
#include "core/base/csv_text.hpp"
#include "core/base/escape.hpp"
#include "core/base/json.hpp"
#include "core/base/number_text.hpp"

namespace kvscope {

namespace {

constexpr std::array<std::string_view, 9> kOfItem = {"trace",       "model",       "task",
                                                     "selector",    "budget_kind", "budget",
                                                     "config_hash", "q_head",      "kv_head"};
constexpr std::array<std::string_view, 7> kFirst = {"task",   "model",  "text",  "protocol",
                                                    "method", "budget", "remark"};

constexpr std::size_t kBudget = 5;

std::string cell_of(const Json& value) {
  if (value.is_string()) return csv_field(value.get<std::string>());
  return value.is_null() ? "" : value.dump();
}

std::size_t column_of(StudyTable& table, const std::string& name) {
  if (table.columns.empty()) table.columns.assign(kFirst.begin(), kFirst.end());
  const auto found = std::ranges::find(table.columns, name);
  const auto at = static_cast<std::size_t>(found - table.columns.begin());
  if (found == table.columns.end()) table.columns.push_back(name);
  return at;
}

void begin_row(StudyTable& table, const StudyItem& item) {
  column_of(table, "task");
  table.rows.push_back(
      {item.task, item.model, item.text, item.protocol, item.method, item.budget, ""});
}

/// Of a column of numbers over layers.
std::string mean_of(const TableColumn& column, const TableColumn* window) {
  if (column.is_text || column.name == "layer" || column.name.ends_with("_low") ||
      column.name.ends_with("_high"))
    return "";
  double sum = 0.0;
  double least = INFINITY;
  double n = 0.0;
  for (std::size_t row = 0; row < column.numbers.size(); ++row) {
    const double x = column.numbers[row];
    const bool has_window = window != nullptr && !window->is_text && window->numbers[row] != 0.0;
    if (std::isnan(x) || has_window) continue;
    sum += x;
    least = std::min(least, x);
    n += 1.0;
  }
  if (n == 0.0) return "";
  return csv_number(column.name == "mass_min" ? least : sum / n);
}

const std::string& cell_at(const std::vector<std::string>& row, std::size_t column) {
  static const std::string empty;
  return column < row.size() ? row[column] : empty;
}

}  // namespace

bool is_answer(const Json& row, const StudyItem& item) {
  if (row.value("selector", std::string()) != item.method) return false;
  if (item.budget.empty()) return true;
  const auto budget = row.find("budget");
  return budget != row.end() && budget->is_number() &&
         fmt::format("{}={}", row.value("budget_kind", std::string()), budget->get<double>()) ==
             item.budget;
}

void put_cell(StudyTable& table, const std::string& column, std::string cell) {
  if (cell.empty()) return;
  const std::size_t at = column_of(table, column);
  auto& row = table.rows.back();
  if (row.size() <= at) row.resize(at + 1);
  row[at] = std::move(cell);
}

std::string rows_of_item(const Json& rows, const StudyItem& item) {
  std::vector<const Json*> own;
  for (const Json& row : rows) {
    const bool is_head = row.contains("q_head") && !row.at("q_head").is_null();
    if (!is_head && is_answer(row, item)) own.push_back(&row);
  }
  std::vector<std::string> columns;  // that hold anything
  for (const Json* row : own) {
    for (const auto& [name, value] : row->items()) {
      const bool is_empty =
          value.is_null() || value == "" || std::ranges::find(kOfItem, name) != kOfItem.end();
      if (!is_empty && std::ranges::find(columns, name) == columns.end()) columns.push_back(name);
    }
  }
  if (columns.empty()) return "";
  std::string csv = fmt::format("{}\n", fmt::join(columns, ","));
  for (const Json* row : own) {
    std::vector<std::string> cells;
    for (const std::string& name : columns)
      cells.push_back(row->contains(name) ? cell_of(row->at(name)) : "");
    csv += fmt::format("{}\n", fmt::join(cells, ","));
  }
  return csv;
}

void add_item(StudyTable& table, const StudyItem& item, const std::string& csv, StudyRows how) {
  const Table rows = table_from_csv(csv, item.what);
  const bool has_means = how != StudyRows::all && rows.find("layer") != nullptr;
  for (std::size_t r = 0; r < (has_means ? 1 : rows.n_rows()); ++r) {
    begin_row(table, item);
    if (how != StudyRows::means) {
      const std::size_t equals = std::min(item.budget.find('='), item.budget.size());
      put_cell(table, "selector", item.method);
      put_cell(table, "budget_kind", item.budget.empty() ? "none" : item.budget.substr(0, equals));
      table.rows.back()[kBudget] = item.budget.substr(std::min(equals + 1, item.budget.size()));
    }
    for (const TableColumn& column : rows.columns())
      put_cell(table, column.name,
               has_means ? mean_of(column, rows.find("window")) : column.cell(r));
  }
}

StudyTable common_layers(StudyTable table) {
  const auto at = [&](std::string_view name) {
    return static_cast<std::size_t>(std::ranges::find(table.columns, name) - table.columns.begin());
  };
  const std::size_t layer = at("layer");
  const std::size_t dense = at("dense");
  const std::size_t window = at("window");
  constexpr std::size_t kMethod = 4;
  const auto place_of = [&](const std::vector<std::string>& row) {  // the method's aside
    return fmt::format("{}\n{}\n{}\n{}", row[1], row[2], row[3], cell_at(row, layer));
  };
  std::set<std::pair<std::string, std::string>> made_sparse;
  for (const auto& row : table.rows) {
    if (cell_at(row, dense) != "1") made_sparse.emplace(place_of(row), row[kMethod]);
  }
  std::set<std::string> left_dense;
  for (const auto& row : table.rows) {
    if (row[kMethod] != "full" && !made_sparse.contains({place_of(row), row[kMethod]}))
      left_dense.insert(place_of(row));
  }
  std::erase_if(table.rows, [&](const auto& row) {
    const std::string& own = cell_at(row, window);
    return (!own.empty() && own != "0") || left_dense.contains(place_of(row));
  });
  return table;
}

void add_remark(StudyTable& table, const StudyItem& item, const std::string& remark) {
  begin_row(table, item);
  put_cell(table, "remark", remark);
}

std::string study_csv(const StudyTable& table) {
  std::string text = fmt::format("{}\n", fmt::join(table.columns, ","));
  for (const auto& row : table.rows) {
    for (std::size_t c = 0; c < table.columns.size(); ++c)
      text += (c == 0 ? "" : ",") + csv_field(cell_at(row, c));
    text += '\n';
  }
  return text;
}

std::string study_markdown(const StudyTable& table) {
  std::string text = "|";
  for (const std::string& column : table.columns) text += " " + markdown_escape(column) + " |";
  text += "\n|";
  for (std::size_t c = 0; c < table.columns.size(); ++c) text += " --- |";
  text += '\n';
  for (const auto& row : table.rows) {
    text += "|";
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      const std::string& cell = cell_at(row, c);
      const auto number = number_from<double>(cell);
      text += " " + (number ? number_text(*number) : markdown_escape(cell)) + " |";
    }
    text += '\n';
  }
  return text;
}

Json study_json(const StudyTable& table) {
  Json rows = Json::array();
  for (const auto& row : table.rows) {
    Json line = Json::object();
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      const std::string& cell = cell_at(row, c);
      const auto number = number_from<double>(cell);
      line[table.columns[c]] = cell.empty() ? Json(nullptr) : number ? Json(*number) : Json(cell);
    }
    rows.push_back(std::move(line));
  }
  return rows;
}

}  // namespace kvscope
