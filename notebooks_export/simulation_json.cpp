#include "notebooks_export/simulation_json.hpp"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "analysis/simulate/row_units.hpp"
#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {

using PlainJson = nlohmann::json;

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw FormatError("{}: {}", where, what);
}

/// A list of numbers, null for NaN.
std::vector<double> numbers_of(const PlainJson& parent, const char* key, const std::string& where) {
  if (!parent.is_object() || !parent.contains(key) || !parent[key].is_array())
    refuse(where, fmt::format("expected a list of numbers \"{}\"", key));
  std::vector<double> numbers;
  for (const PlainJson& item : parent[key]) {
    if (!item.is_number() && !item.is_null())
      refuse(where, fmt::format("{}: expected numbers, found {}", key, describe(item)));
    numbers.push_back(item.is_null() ? kNan : item.get<double>());
  }
  return numbers;
}

void write_list(ResultWriter& output, const std::string& name, const std::vector<double>& values,
                const char* axis, const char* units) {
  output.declare({name, ResultType::f64, {static_cast<Index>(values.size())}, {axis}, units, axis});
  output.write<double>(name, 0, values);
}

void write_grids(const PlainJson& grids, const std::string& where, ResultWriter& output) {
  std::vector<double> lengths;
  std::vector<double> depths;
  std::map<std::string, std::vector<double>> by_kind;
  for (const PlainJson& grid : grids) {
    const auto own_lengths = numbers_of(grid, "lengths", where);
    const auto own_depths = numbers_of(grid, "depths", where);
    const auto accuracy = numbers_of(grid, "accuracy", where);
    if (by_kind.empty()) {
      lengths = own_lengths;
      depths = own_depths;
    }
    if (own_lengths != lengths || own_depths != depths || lengths.empty() || depths.empty() ||
        accuracy.size() != lengths.size() * depths.size() || !grid.contains("kind") ||
        !grid["kind"].is_string()) {
      refuse(where, "a grid does not fit its lengths, its depths or the other grids");
    }
    auto& all = by_kind[grid["kind"].get<std::string>()];
    all.insert(all.end(), accuracy.begin(), accuracy.end());
  }
  if (by_kind.empty()) return;
  write_list(output, "grid/length", lengths, "length", "token");
  write_list(output, "grid/depth", depths, "depth", "1");
  const std::size_t n_cells = lengths.size() * depths.size();
  for (const auto& [kind, accuracy] : by_kind) {
    if (kind == "length" || kind == "depth" || kind == "pair")
      refuse(where, fmt::format("a grid is called {}, as an axis is", kind));
    const std::string name = "grid/" + kind;
    output.declare({name,
                    ResultType::f64,
                    {static_cast<Index>(accuracy.size() / n_cells),
                     static_cast<Index>(lengths.size()), static_cast<Index>(depths.size())},
                    {"pair", "length", "depth"},
                    "1",
                    "accuracy"});
    output.write<double>(name, 0, accuracy);
  }
}

void write_curves(const PlainJson& curves, const std::string& where, ResultWriter& output) {
  if (!curves.is_object() || !curves.contains("log_perplexity") ||
      !curves["log_perplexity"].is_array() || !curves.contains("step_begin") ||
      !curves["step_begin"].is_number_integer()) {
    refuse(where, "expected curves with step_begin and log_perplexity");
  }
  std::vector<double> all;
  std::size_t n_steps = 0;
  const PlainJson& lists = curves["log_perplexity"];
  for (const PlainJson& list : lists) {
    const auto values = numbers_of(PlainJson{{"log_perplexity", list}}, "log_perplexity", where);
    if (!all.empty() && values.size() != n_steps) refuse(where, "curves of different lengths");
    n_steps = values.size();
    all.insert(all.end(), values.begin(), values.end());
  }
  if (all.empty()) return;
  std::vector<double> positions(n_steps);
  std::iota(positions.begin(), positions.end(), curves["step_begin"].get<double>());
  write_list(output, "curve/position", positions, "position", "token");
  output.declare({"curve/log_perplexity",
                  ResultType::f64,
                  {static_cast<Index>(lists.size()), static_cast<Index>(n_steps)},
                  {"pair", "position"},
                  "nat",
                  "mean loss up to this position"});
  output.write<double>("curve/log_perplexity", 0, all);
}

/// "quest tokens=256": how a row's method and budget are called in outcomes.
std::string label_of(const PlainJson& row) {
  std::string label = row.value("selector", "");
  const auto budget = row.find("budget");
  if (budget != row.end() && budget->is_number())
    label += fmt::format(" {}={}", row.value("budget_kind", ""), budget->get<double>());
  return label;
}

/// Scores of the prompts of every row; none where they are not there.
std::vector<std::vector<double>> prompt_scores(const PlainJson& report) {
  std::vector<std::vector<double>> units;
  for (const PlainJson& row : report["rows"]) {
    auto& scores = units.emplace_back();
    for (const PlainJson& outcome : report["outcomes"]) {
      const auto agrees = [&](const char* key) {
        return !row.contains(key) || !outcome.contains(key) || row[key] == outcome[key];
      };
      if (!agrees("protocol") || !agrees("kind") || !agrees("length")) continue;
      const PlainJson of_pair =
          outcome.value("scores", PlainJson::object()).value(label_of(row), PlainJson::array());
      for (const PlainJson& score : of_pair)
        scores.push_back(score.is_number() ? score.get<double>() : kNan);
    }
  }
  return units;
}

/// Mean loss of each block of 64 positions, from the mean up to each position.
std::vector<std::vector<double>> block_losses(const PlainJson& curves, const std::string& where) {
  constexpr std::size_t kBlock = 64;
  std::vector<std::vector<double>> units;
  for (const PlainJson& list : curves["log_perplexity"]) {
    const auto means = numbers_of(PlainJson{{"log_perplexity", list}}, "log_perplexity", where);
    auto& losses = units.emplace_back();
    for (std::size_t end = kBlock; end <= means.size(); end += kBlock) {
      const std::size_t begin = end - kBlock;
      const double before = begin == 0 ? 0.0 : static_cast<double>(begin) * means[begin - 1];
      losses.push_back((static_cast<double>(end) * means[end - 1] - before) /
                       static_cast<double>(kBlock));
    }
  }
  return units;
}

/// What the rows are means of, for readers that compare them.
void write_units(const PlainJson& report, const std::string& where, ResultWriter& output) {
  if (!report.contains("rows") || !report["rows"].is_array()) return;
  std::vector<std::vector<double>> units;
  if (report.contains("outcomes") && report["outcomes"].is_array()) {
    try {
      units = prompt_scores(report);
    } catch (const PlainJson::exception& error) {
      refuse(where, fmt::format("outcomes that do not fit the rows: {}", error.what()));
    }
  } else if (report.contains("curves")) {
    units = block_losses(report["curves"], where);
  }
  if (units.size() == report["rows"].size()) write_row_units(output, units, "of each row's mean");
}

}  // namespace

void write_simulation_arrays(const PlainJson& report, const std::string& where,
                             ResultWriter& output) {
  if (!report.is_object()) return;
  if (report.contains("grids") && report["grids"].is_array())
    write_grids(report["grids"], where, output);
  if (report.contains("curves")) write_curves(report["curves"], where, output);
  write_units(report, where, output);
}

}  // namespace kvscope
