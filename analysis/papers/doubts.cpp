#include "analysis/papers/doubts.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "analysis/papers/rows_where.hpp"

namespace kvscope::papers {

namespace {

/// Rows of the run's table that values of the item read.
std::set<std::size_t> rows_read(const Item& item, const std::string& run, const Table& table) {
  std::set<std::size_t> rows;
  for (const Value& value : item.values) {
    if (value.run != run || value.column.starts_with("totals.")) continue;
    const auto more = rows_where(table, value.where);
    rows.insert(more.begin(), more.end());
  }
  return rows;
}

/// Every row that a doubt is about is one of them.
bool is_about(const nlohmann::ordered_json& doubt, const std::set<std::size_t>& rows) {
  const auto& about = doubt.at("rows");
  return std::ranges::all_of(
      about, [&](const auto& row) { return rows.contains(row.template get<std::size_t>()); });
}

}  // namespace

std::vector<std::string> doubts_of(const Item& item, const FindRun& find_run) {
  std::vector<std::string> doubts;
  std::set<std::string> seen;
  for (const Value& value : item.values) {
    if (!seen.insert(value.run).second) continue;
    const ResultView* const view = find_run(value.run).view;
    if (view == nullptr || !view->summary().contains("doubts")) continue;
    const std::set<std::size_t> rows = rows_read(item, value.run, rows_of(*view));
    for (const auto& doubt : view->summary()["doubts"]) {
      if (is_about(doubt, rows)) doubts.push_back(doubt.at("sentence").get<std::string>() + ".");
    }
  }
  return doubts;
}

}  // namespace kvscope::papers
