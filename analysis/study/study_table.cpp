#include "analysis/study/study_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "analysis/base/json_rows.hpp"
#include "analysis/base/paired_numbers.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/study/study_state.hpp"
#include "core/base/escape.hpp"
#include "core/base/json.hpp"
#include "core/base/json_members.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/lists.hpp"
#include "core/base/nan.hpp"
#include "core/base/number_text.hpp"

namespace kvscope {

namespace {

constexpr std::array<std::string_view, 9> kOfItem = {"trace",       "model",       "task",
                                                     "selector",    "budget_kind", "budget",
                                                     "config_hash", "q_head",      "kv_head"};

Json row_of(const StudyItem& item, const std::string& remark = "") {
  return {{"task", item.task},         {"model", item.model},   {"text", item.text},
          {"protocol", item.protocol}, {"method", item.method}, {"budget", item.budget},
          {"remark", remark}};
}

/// The gates (analysis/simulate/gates.hpp) that a job of one method beside dense attention can
/// judge. What compares methods it cannot: it never met the others; and a number without an
/// interval had too few trials.
std::string doubt_of(const Json& row) {
  constexpr std::string_view kSaturated = "saturated";
  constexpr std::string_view kTooFewTrials = "too-few-trials";
  std::vector<std::string> gates;
  for (const std::string& gate : split_words(row.value("doubt", std::string()), '+'))
    if (!gate.empty() && gate != kSaturated && gate != kTooFewTrials) gates.push_back(gate);
  for (const char* name : {"relative_increase", "accuracy", "acceptance_length"}) {
    const bool has_number = row.contains(name) && row.at(name).is_number();
    const std::string low = std::string(name) + "_low";
    if (has_number && !(row.contains(low) && row.at(low).is_number()))
      gates.emplace_back(kTooFewTrials);
  }
  return fmt::format("{}", fmt::join(gates, "+"));
}

/// True for the rows of the item's method and budget, those of single heads among them.
bool is_answer(const Json& row, const StudyItem& item) {
  if (row.value("selector", std::string()) != item.method) return false;
  if (item.budget.empty()) return true;
  const auto budget = row.find("budget");
  return budget != row.end() && budget->is_number() &&
         fmt::format("{}={}", row.value("budget_kind", std::string()), budget->get<double>()) ==
             item.budget;
}

/// Rows of layers as one.
Json means_of(const Json& rows) {
  struct Column {
    std::string name;
    Mean mean;
    double least = INFINITY;
  };
  std::vector<Column> columns;
  for (const Json& row : rows) {
    const bool has_window = row.value("window", 0.0) != 0.0;
    std::size_t at = 0;  // rows have the same columns, mostly
    for (const auto& [name, value] : row.items()) {
      if (at >= columns.size() || columns[at].name != name)
        at = static_cast<std::size_t>(std::ranges::find(columns, name, &Column::name) -
                                      columns.begin());
      if (at == columns.size()) columns.push_back({name});
      Column& column = columns[at++];
      if (has_window || !value.is_number()) continue;
      column.mean.add(value.get<double>());
      column.least = std::min(column.least, value.get<double>());
    }
  }
  Json means = Json::object();
  for (const auto& [name, mean, least] : columns) {
    if (name == "layer" || name.ends_with("_low") || name.ends_with("_high")) continue;
    if (mean.n() > 0) means[name] = name == "mass_min" ? least : mean.value();
  }
  if (means.contains("predicted_speedup"))  // no mean of ratios
    means["predicted_speedup"] =
        number_at(means, "predicted_dense_us") / number_at(means, "predicted_us");
  return means;
}

/// What of a head is kept, and what a difference of it is called.
constexpr std::pair<const char*, std::string_view> kHeadColumns[] = {
    {"mass_mean", "mass_difference"},
    {"recall10", "recall10_difference"},
    {"output_error_rel", "output_error_rel_difference"}};

/// Five digits: a store holds many heads, and no difference that counts lies below them.
Json short_number(const Json& number) {
  if (!number.is_number()) return nullptr;
  const auto rounded = number_from<double>(fmt::format("{:.5g}", number.get<double>()));
  return or_null(rounded);
}

/// Differences where both have a number.
std::vector<double> differences_by_head(const Json& a, const Json& b) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].is_number() && b[i].is_number())
      differences.push_back(a[i].get<double>() - b[i].get<double>());
  }
  return differences;
}

/// The item's rows below those of the table. `totals`: of an analysis, which says itself what its
/// layers are together; else null, and what it does not say, the means do.
void add_item(Json& table, const StudyItem& item, const Json& rows, const Json& totals,
              StudyRows how) {
  const bool has_means = how != StudyRows::all && std::ranges::any_of(rows, [](const Json& row) {
                           return row.contains("layer");
                         });
  Json whole = means_of(rows);
  if (totals.is_object()) whole.update(totals);
  for (const Json& row : has_means || rows.empty() ? Json::array({whole}) : rows) {
    Json line = row_of(item);
    if (how != StudyRows::means) {
      const std::size_t equals = std::min(item.budget.find('='), item.budget.size());
      const std::string amount = item.budget.substr(std::min(equals + 1, item.budget.size()));
      const auto number = number_from<double>(amount);
      if (!item.method.empty()) line["selector"] = item.method;
      line["budget_kind"] = item.budget.empty() ? "none" : item.budget.substr(0, equals);
      line["budget"] = number ? Json(*number) : Json(amount);
    }
    line.update(row);
    table.push_back(std::move(line));
  }
}

/// A line that only says what became of the item.
void add_remark(Json& table, const StudyItem& item, const std::string& remark) {
  table.push_back(row_of(item, remark));
}

/// What an item's line holds; null where it has nothing of the name. Heads are most of it.
struct StoredItem {
  Json rows, totals, heads, remark;
};

StoredItem read_item(const std::string& line, const StudyItem& item, bool with_heads = true) {
  StoredItem stored;
  for_each_json_member(line, item.what, [&](std::string_view name, std::string_view text) {
    const auto read = [&](Json& to) { to = parse_ordered_json(text, item.what); };
    if (name == "rows") read(stored.rows);
    if (name == "totals") read(stored.totals);
    if (name == "heads" && with_heads) read(stored.heads);
    if (name == "remark") read(stored.remark);
  });
  return stored;
}

}  // namespace

Json rows_of_item(const Json& rows, const StudyItem& item) {
  Json own = Json::array();
  for (const Json& row : rows) {
    const bool is_head = row.contains("q_head") && !row.at("q_head").is_null();
    if (is_head || !is_answer(row, item)) continue;
    Json kept = Json::object();
    for (const auto& [name, value] : row.items()) {
      const bool is_empty =
          value.is_null() || value == "" || std::ranges::find(kOfItem, name) != kOfItem.end();
      if (!is_empty) kept[name] = value;
    }
    kept.erase("doubt");
    if (const std::string doubt = doubt_of(row); !doubt.empty()) kept["doubt"] = doubt;
    if (!kept.empty()) own.push_back(std::move(kept));
  }
  return own;
}

Json heads_of_item(const Json& rows, const StudyItem& item) {
  Json heads;
  for (const Json& row : rows) {
    if (!row.contains("q_head") || row.at("q_head").is_null() || !is_answer(row, item)) continue;
    const auto window = row.find("window");
    if (window != row.end() && window->is_number() && *window != 0) continue;
    const auto dense = row.find("dense");
    const bool is_dense = dense != row.end() && dense->is_number() && *dense != 0;
    for (const auto& [column, difference] : kHeadColumns)
      heads[column].push_back(row.contains(column) && !is_dense ? short_number(row.at(column))
                                                                : Json(nullptr));
  }
  return heads;
}

std::vector<HeadDifference> head_differences(const Json& heads, const Json& against) {
  std::vector<HeadDifference> list;
  if (!heads.is_object() || !against.is_object()) return list;
  for (const auto& [column, name] : kHeadColumns) {
    if (!heads.contains(column) || !against.contains(column)) continue;
    if (heads.at(column).size() != against.at(column).size()) continue;
    const std::vector<double> differences =
        differences_by_head(heads.at(column), against.at(column));
    if (differences.empty()) continue;
    const bool are_equal = std::ranges::all_of(differences, [](double d) { return d == 0.0; });
    Interval interval{are_equal ? 0.0 : kNan, are_equal ? 0.0 : kNan};
    if (differences.size() > 1 && !are_equal) interval = paired_interval(differences, 0.95);
    list.push_back({name, mean(differences), interval.low, interval.high});
  }
  return list;
}

StudyAnswers::StudyAnswers(const StudyPlan& plan, const Store& store)
    : plan_(plan), store_(store) {}

std::string StudyAnswers::line_of(const StudyItem& item) const {
  return store_.knows(item.key) ? store_.line(item.key) : "";
}

std::vector<const StudyItem*> StudyAnswers::items(const std::string& task) const {
  std::vector<const StudyItem*> items;
  for (const StudyItem& item : plan_.items) {
    if (!plan_.jobs[item.job].is_recording && (task.empty() || item.task == task))
      items.push_back(&item);
  }
  return items;
}

Json StudyAnswers::table(const std::string& task, StudyRows how) const {
  Json table = Json::array();
  for (const StudyItem* item : items(task)) {
    const std::string failure = failure_of(plan_, store_, *item);
    if (!failure.empty()) {
      add_remark(table, *item, "failed: " + failure);
      continue;
    }
    const std::string line = line_of(*item);
    if (line.empty()) continue;
    const StoredItem stored = read_item(line, *item, /*with_heads=*/false);
    if (stored.rows.empty() && stored.totals.empty())
      add_remark(table, *item, stored.remark.is_string() ? stored.remark.get<std::string>() : "");
    else
      add_item(table, *item, stored.rows, stored.totals, how);
  }
  return table;
}

Json StudyAnswers::with_differences(const std::string& task, const std::string& against) const {
  const auto scene_of = [](const StudyItem& item) {
    return std::tuple(item.task, item.model, item.text, item.protocol);
  };
  using Scene = decltype(scene_of(plan_.items[0]));
  std::map<std::pair<Scene, std::string>, Json> references;  // by scene and budget
  // By scene and method: heads that the method chooses for at some budget.
  std::map<Scene, std::map<std::string, std::vector<bool>>> acts;
  for (const StudyItem* item : items(task)) {
    const std::string line = line_of(*item);
    const Json heads = line.empty() ? Json() : read_item(line, *item).heads;
    if (item->method == against && !line.empty())
      references[{scene_of(*item), item->budget}] = heads;
    if (!heads.is_object() || item->method == "full") continue;
    std::vector<bool>& known = acts[scene_of(*item)][item->method];
    for (const Json& list : heads) {
      known.resize(std::max(known.size(), list.size()));
      for (std::size_t i = 0; i < list.size(); ++i)
        if (!list[i].is_null()) known[i] = true;
    }
  }
  const auto in_common = [&](Json heads, const Scene& scene) {
    for (const auto& [method, known] : acts[scene]) {
      for (Json& list : heads) {
        for (std::size_t i = 0; i < std::min(known.size(), list.size()); ++i)
          if (!known[i]) list[i] = nullptr;
      }
    }
    return heads;
  };
  Json table = Json::array();
  for (const StudyItem* item : items(task)) {
    const std::string line = line_of(*item);
    if (line.empty()) continue;
    const StoredItem stored = read_item(line, *item);
    if (stored.rows.empty()) continue;
    add_item(table, *item, stored.rows, Json(), StudyRows::named_means);
    const auto reference = references.find({scene_of(*item), item->budget});
    if (reference == references.end()) continue;
    const Json heads = in_common(stored.heads, scene_of(*item));
    for (const HeadDifference& one : head_differences(heads, reference->second)) {
      const std::string column(one.column);
      table.back()[column] = one.mean;
      table.back()[column + "_low"] = json_number(one.low);
      table.back()[column + "_high"] = json_number(one.high);
    }
  }
  return table;
}

std::size_t StudyAnswers::n_unknown(const std::string& task) const {
  return static_cast<std::size_t>(std::ranges::count_if(items(task), [&](const StudyItem* item) {
    return failure_of(plan_, store_, *item).empty() && !store_.knows(item->key);
  }));
}

Json common_layers(const Json& table) {
  const auto place_of = [](const Json& row) {  // the method's aside
    return fmt::format("{}\n{}\n{}\n{}", row_cell(row, "model"), row_cell(row, "text"),
                       row_cell(row, "protocol"), row_cell(row, "layer"));
  };
  std::set<std::pair<std::string, std::string>> made_sparse;
  for (const Json& row : table) {
    if (row_cell(row, "dense") != "1") made_sparse.emplace(place_of(row), row_cell(row, "method"));
  }
  std::set<std::string> left_dense;
  for (const Json& row : table) {
    const std::string method = row_cell(row, "method");
    if (method != "full" && !made_sparse.contains({place_of(row), method}))
      left_dense.insert(place_of(row));
  }
  Json common = Json::array();
  for (const Json& row : table) {
    const std::string window = row_cell(row, "window");
    if ((window.empty() || window == "0") && !left_dense.contains(place_of(row)))
      common.push_back(row);
  }
  return common;
}

std::string study_markdown(const Json& table) {
  const std::vector<std::string> columns = row_columns(table);
  std::string text = "|";
  for (const std::string& column : columns) text += " " + markdown_escape(column) + " |";
  text += "\n|";
  for (std::size_t c = 0; c < columns.size(); ++c) text += " --- |";
  text += '\n';
  for (const Json& row : table) {
    text += "|";
    for (const std::string& column : columns) {
      const std::string cell = row_cell(row, column);
      const auto number = number_from<double>(cell);
      text += " " + (number ? number_text(*number) : markdown_escape(cell)) + " |";
    }
    text += '\n';
  }
  return text;
}

Json study_json(const Json& table) {
  const std::vector<std::string> columns = row_columns(table);
  Json rows = Json::array();
  for (const Json& row : table) {
    Json line = Json::object();
    for (const std::string& column : columns)
      line[column] = row_cell(row, column).empty() ? Json(nullptr) : row.at(column);
    rows.push_back(std::move(line));
  }
  return rows;
}

}  // namespace kvscope
