#include "analysis/papers/measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "analysis/base/mapped.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/figures/sweep_cells.hpp"
#include "analysis/simulate/intervals.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/lists.hpp"
#include "core/base/nan.hpp"
#include "core/base/number_text.hpp"
#include "core/trace/result.hpp"

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
  if (where.empty()) return conditions;
  for (const std::string& part : split_words(where, ';')) {
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

double reduced(const std::vector<double>& x, Reduce how) {
  if (how == Reduce::min) return *std::ranges::min_element(x);
  if (how == Reduce::max) return *std::ranges::max_element(x);
  double sum = 0.0;
  for (const double v : x) sum += v;
  return sum / static_cast<double>(x.size());
}

class Reader {
 public:
  explicit Reader(const FindRun& find_run) : find_run_(find_run) {}

  Measured read(const Value& value) {
    Measured measured;
    measured.value = measured.low = measured.high = kNan;
    const RunResult result = find_run_(value.run);
    if (result.view == nullptr) {
      measured.missing = result.missing;
      measured.not_run = result.not_run;
      return measured;
    }
    try {
      if (value.column.starts_with("totals.")) {
        read_total(value, *result.view, measured);
      } else {
        read_rows(value, rows_of_run(value.run, *result.view), measured);
      }
    } catch (const Error& error) {
      measured.missing = error.what();
    }
    for (double* x : {&measured.value, &measured.low, &measured.high}) *x *= value.factor;
    if (measured.missing.empty() && std::isnan(measured.value))
      measured.missing = fmt::format("{} of {} has no value there", value.column, value.run);
    return measured;
  }

 private:
  const Table& rows_of_run(const std::string& run, const ResultView& view) {
    const auto at = tables_.find(run);
    if (at != tables_.end()) return at->second;
    return tables_.emplace(run, rows_of(view)).first->second;
  }

  /// The number of the totals; its range over the rows of the same column (layers).
  void read_total(const Value& value, const ResultView& view, Measured& measured) {
    const std::string name = value.column.substr(7);
    const auto& summary = view.summary();
    if (!summary.contains("totals") || !summary["totals"].contains(name) ||
        !summary["totals"][name].is_number()) {
      measured.missing = fmt::format("{} has no total {}", value.run, name);
      return;
    }
    measured.value = measured.low = measured.high = summary["totals"][name].get<double>();
    if (value.spread != Spread::rows) return;
    const Table& table = rows_of_run(value.run, view);
    if (!table.has(name)) return;
    std::vector<double> x;
    for (const double v : table.numbers(name)) {
      if (!std::isnan(v)) x.push_back(v);
    }
    set_range(x, "layers", measured);
  }

  void read_rows(const Value& value, const Table& table, Measured& measured) {
    std::vector<double> x, low, high;
    double prompts = 0.0;
    std::set<std::string> asked;  // prompts that one row or another is of: counted once
    const auto column = table.numbers(value.column);
    const std::string stem = figures::interval_stem(table, value.column);
    const bool has_ends = !stem.empty();
    for (const std::size_t row : rows_where(table, value.where)) {
      if (std::isnan(column[row])) continue;
      x.push_back(column[row]);
      if (has_ends) {
        low.push_back(table.numbers(stem + "_low")[row]);
        high.push_back(table.numbers(stem + "_high")[row]);
      }
      if (value.spread != Spread::wilson || !table.has("prompts")) continue;
      std::string which;
      for (const char* name : {"model", "kind", "length", "depth", "turn"}) {
        if (const TableColumn* const one = table.find(name)) which += one->cell(row) + "\n";
      }
      if (asked.insert(which).second) prompts += table.numbers("prompts")[row];
    }
    if (x.empty()) {
      measured.missing = fmt::format("{} has no row with {}", value.run, value.where);
      return;
    }
    measured.rows = static_cast<std::int64_t>(x.size());
    measured.value = measured.low = measured.high = reduced(x, value.reduce);
    if (value.spread == Spread::wilson && prompts > 0 && value.reduce == Reduce::mean) {
      measured.prompts = static_cast<std::int64_t>(prompts);
      const Interval interval = wilson_interval(measured.value * prompts, prompts);
      measured.low = interval.low;
      measured.high = interval.high;
      measured.interval = fmt::format("95 % interval, {} prompts", measured.prompts);
      if (x.size() > asked.size())
        measured.interval += fmt::format(", each in {} rows", x.size() / asked.size());
    } else if (value.spread == Spread::recorded && has_ends) {
      measured.low = reduced(low, value.reduce);
      measured.high = reduced(high, value.reduce);
      measured.interval = x.size() == 1 || value.reduce != Reduce::mean
                              ? std::string("recorded interval")
                              : fmt::format("mean of the ends of {} rows", x.size());
    } else if (value.spread == Spread::rows) {
      set_range(x, "rows", measured);
    }
  }

  static void set_range(const std::vector<double>& x, const char* what, Measured& measured) {
    if (x.size() < 2) return;
    measured.rows = static_cast<std::int64_t>(x.size());
    measured.low = *std::ranges::min_element(x);
    measured.high = *std::ranges::max_element(x);
    measured.interval = fmt::format("range over {} {}", x.size(), what);
    measured.is_range = true;
  }

  const FindRun& find_run_;
  std::map<std::string, Table> tables_;
};

/// value with respect to than, with the widest interval that the two allow.
void derive(const Value& value, Measured than, Measured& measured) {
  if (!measured.missing.empty()) return;
  if (than.is_range) than.low = than.high = than.value;
  if (!than.missing.empty()) {
    measured.missing = than.missing;
    measured.not_run = than.not_run;
  } else if (value.derive == Derive::per_lost) {
    const double lost = 1.0 - than.value;
    if (!(lost > 0.0)) measured.missing = "nothing was lost";
    for (double* x : {&measured.value, &measured.low, &measured.high}) *x /= lost;
  } else if (!(than.low > 0.0)) {
    measured.missing = "the value it is divided by is not above 0";
  } else {
    measured.value /= than.value;
    measured.low /= than.high;
    measured.high /= than.low;
  }
}

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

std::vector<std::size_t> rows_where(const Table& table, const std::string& where) {
  const auto conditions = conditions_of(where);
  std::vector<std::size_t> rows;
  for (std::size_t row = 0; row < table.n_rows(); ++row) {
    if (std::ranges::all_of(conditions, [&](const Condition& c) { return matches(table, row, c); }))
      rows.push_back(row);
  }
  return rows;
}

std::vector<Measured> measure(const Item& item, const FindRun& find_run) {
  Reader reader(find_run);
  auto all = mapped<Measured>(item.values, [&](const Value& value) { return reader.read(value); });
  const std::vector<Measured> read = all;
  for (std::size_t i = 0; i < item.values.size(); ++i) {
    const Value& value = item.values[i];
    if (value.derive == Derive::none) continue;
    const Value* const than = item.find(value.than);
    if (than == nullptr) {
      throw ConfigError("{}: value {} is compared with {}, which there is not", item.id, value.key,
                        value.than);
    }
    derive(value, read[static_cast<std::size_t>(than - item.values.data())], all[i]);
  }
  return all;
}

std::string plain_number(double x, Unit unit) {
  if (std::isnan(x)) return "-";
  switch (unit) {
    case Unit::percent: {
      const double points = 100.0 * x;
      return std::abs(points - std::round(points)) < 0.05 || std::abs(points) >= 99.95
                 ? fmt::format("{:.0f} %", points)
                 : fmt::format("{:.1f} %", points);
    }
    case Unit::factor:
      return fmt::format("{:.2f}x", x);
    case Unit::tokens:
      return fmt::format("{} tokens", number_text(x, 4));
    case Unit::number:
      break;
  }
  return number_text(x, 4);
}

std::string number_of(const Measured& measured, Unit unit) {
  if (!measured.missing.empty()) return "-";
  if (measured.interval.empty()) return plain_number(measured.value, unit);
  return fmt::format(fmt::runtime(measured.is_range ? "{}, {} to {}" : "{} [{}, {}]"),
                     plain_number(measured.value, unit), plain_number(measured.low, unit),
                     plain_number(measured.high, unit));
}

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
