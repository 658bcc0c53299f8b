#include "analysis/papers/doubts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/papers/rows_where.hpp"
#include "core/base/json.hpp"
#include "core/trace/result.hpp"

namespace kvscope::papers {

namespace {

/// The share of a machine's cores from which others disturb.
constexpr double kBusy = 0.1;

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
bool is_about(const Json& doubt, const std::set<std::size_t>& rows) {
  const auto& about = doubt.at("rows");
  return std::ranges::all_of(
      about, [&](const auto& row) { return rows.contains(row.template get<std::size_t>()); });
}

/// That others used the machine while something was timed; empty if they did not, or nobody knows.
std::string busy_machine(const Json& config) {
  const double others = number_at(config, "other_cores");
  const double cores = number_at(config, "machine_cores");
  if (!(others > kBusy * cores)) return "";
  return fmt::format("Other programs kept {:.1f} of {:.0f} cores busy while this was timed.",
                     others, cores);
}

}  // namespace

std::vector<std::string> doubts_of(const Item& item, const FindRun& find_run) {
  std::vector<std::string> doubts;
  std::set<std::string> seen;
  for (const Value& value : item.values) {
    if (!seen.insert(value.run).second) continue;
    const ResultView* const view = find_run(value.run).view;
    if (view == nullptr) continue;
    if (view->info().config.is_object()) {
      const std::string busy = busy_machine(view->info().config);
      if (!busy.empty()) doubts.push_back(busy);
    }
    if (!view->summary().contains("doubts")) continue;
    const std::set<std::size_t> rows = rows_read(item, value.run, rows_of(*view));
    for (const auto& doubt : view->summary()["doubts"]) {
      if (is_about(doubt, rows)) doubts.push_back(doubt.at("sentence").get<std::string>() + ".");
    }
  }
  return doubts;
}

}  // namespace kvscope::papers
