#include "notebooks_export/table_pivot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "analysis/base/mapped.hpp"
#include "analysis/base/number_formats.hpp"
#include "core/base/error.hpp"
#include "core/base/escape.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/lists.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kMaxCells = 10'000;

using Rows = RowSlots;
using Fields = std::vector<TableField>;
using Texts = KeyTexts;

bool mentions(const TableSpec& spec, std::string_view column) {
  const auto has = [&](const Texts& fields) {
    return std::any_of(fields.begin(), fields.end(), [&](const std::string& field) {
      for (const std::string& part : split_words(field, '+')) {
        for (const std::string& name : split_words(part, '|')) {
          if (name == column || name == std::string(column) + "?") return true;
        }
      }
      return false;
    });
  };
  return has(spec.rows) || has(spec.columns) ||
         std::any_of(spec.where.begin(), spec.where.end(),
                     [&](const auto& filter) { return filter.first == column; });
}

/// Text equal, or equal as numbers ("0.50" is 0.5).
bool matches(const TableColumn& column, std::size_t row, const std::string& wanted) {
  if (column.cell(row) == wanted) return true;
  if (column.is_text || wanted.empty()) return false;
  char* end = nullptr;
  const double number = std::strtod(wanted.c_str(), &end);
  return *end == '\0' && number == column.numbers[row];
}

std::vector<FieldKey> keys_of(const Fields& fields, std::size_t row) {
  return mapped<FieldKey>(fields, [&](const TableField& field) { return field.key(row); });
}

bool is_whole(const std::vector<FieldKey>& key) {
  return std::none_of(key.begin(), key.end(),
                      [](const FieldKey& part) { return part.text.empty(); });
}

/// The role of the method that one of the fields names.
RowRole role_of(const Fields& fields, std::size_t row) {
  for (const TableField& field : fields) {
    if (field.is_method()) return role_of_method(field.method(row));
  }
  return RowRole::method;
}

/// "f32" where the result says nothing.
std::string format_name(const TableColumn& column, std::size_t row) {
  const std::string name = column.cell(row);
  return name.empty() ? "f32" : name;
}

/// True if the rows behind each cell agree in this column.
bool is_one_per_cell(const TableColumn& column, const Rows& rows, const Fields& row_fields,
                     const Fields& column_fields) {
  std::map<std::pair<Texts, Texts>, std::string> seen;
  for (const std::size_t row : rows) {
    Texts head;
    Texts side;
    for (const FieldKey& key : keys_of(column_fields, row)) head.push_back(key.text);
    for (const FieldKey& key : keys_of(row_fields, row)) side.push_back(key.text);
    const std::string text = column.cell(row);
    if (seen.try_emplace({std::move(side), std::move(head)}, text).first->second != text)
      return false;
  }
  return true;
}

/// A drop where the dense model fails says nothing about a method: such prompts are left out,
/// unless the table asks for kinds of prompts by name.
void leave_out_unsolved(const Table& table, const TableSpec& spec, Rows& rows, LeftOut& left_out) {
  const TableColumn* kind = table.find("kind");
  const TableColumn* solved = table.find("dense_solves");
  if (!kind || !solved || mentions(spec, "kind") || mentions(spec, "dense_solves")) return;
  const TableColumn* length = table.find("length");
  const TableColumn* model = table.find("model");
  std::set<std::string> models;
  for (const std::size_t row : rows) models.insert(model ? model->cell(row) : std::string());
  const auto add_once = [](Texts& list, const std::string& text) {
    if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
  };
  Rows kept;
  for (const std::size_t row : rows) {
    if (solved->cell(row) != "no") {
      kept.push_back(row);
      continue;
    }
    std::string where = length ? length->cell(row) : std::string();
    if (models.size() > 1) where += fmt::format(" ({})", model->cell(row));
    add_once(left_out.unsolved[kind->cell(row)], where);
  }
  if (kept.empty()) {
    throw ConfigError(
        "the dense model answers none of these prompts, so that nothing can be compared; --where "
        "kind={} shows the rows all the same",
        kind->cell(rows.front()));
  }
  rows = std::move(kept);
}

}  // namespace

Texts texts_of(const std::vector<FieldKey>& key) {
  Texts texts;
  for (const FieldKey& part : key) texts.push_back(part.text);
  return texts;
}

Rows chosen_rows(const Table& table, const TableSpec& spec, const MatchedRows& matched,
                 LeftOut& left_out) {
  Rows rows(table.n_rows());
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = i;
  const auto keep = [&](const auto& wanted) {
    std::erase_if(rows, [&](std::size_t row) { return !wanted(row); });
  };
  for (const auto& filter : spec.where) {
    const std::string& name = filter.first;
    const std::string& text = filter.second;
    const TableColumn& column = table.at(name);
    // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): keep() changes rows
    const Rows before = rows;
    const bool is_known = std::any_of(rows.begin(), rows.end(),
                                      [&](std::size_t row) { return matches(column, row, text); });
    keep([&](std::size_t row) {
      return matches(column, row, text) || (name == "match" && matched.has_no_setting(row));
    });
    if (is_known) continue;
    std::set<std::string> found;
    for (const std::size_t row : before) {
      if (found.size() < 12) found.insert(column.cell(row));
    }
    throw ConfigError("no row has {} = {}; there is {}", name, quote(text),
                      some_of({found.begin(), found.end()}));
  }
  // a sweep lists layers and their heads: averaging both would count every head twice
  const TableColumn* q_head = table.find("q_head");
  if (q_head) {
    const bool by_head = mentions(spec, "q_head") || mentions(spec, "kv_head");
    const auto is_meant = [&](std::size_t row) { return q_head->cell(row).empty() != by_head; };
    if (std::any_of(rows.begin(), rows.end(), is_meant)) keep(is_meant);
  }
  const TableColumn* window = table.find("window");
  if (window && !window->is_text && !mentions(spec, "window")) {
    const std::size_t n_before = rows.size();
    keep([&](std::size_t row) { return !(window->numbers[row] > 0); });
    left_out.has_windows = rows.size() < n_before;
  }
  if (rows.empty()) throw ConfigError("the result has no rows to make a table of");
  leave_out_unsolved(table, spec, rows, left_out);
  return rows;
}

Fields bind_fields(const Table& table, const Texts& names, const Rows& rows,
                   const TableSpec& spec) {
  Fields fields;
  for (const std::string& name : names) {
    if (auto field = TableField::bind(table, name, rows, spec)) fields.push_back(std::move(*field));
  }
  return fields;
}

void check_alike(const Table& table, const Rows& rows, const MatchedRows& matched,
                 const Fields& row_fields, const Fields& column_fields) {
  std::set<std::string> used;
  for (const Fields* fields : {&row_fields, &column_fields}) {
    for (const TableField& field : *fields) {
      for (const std::string& name : field.columns()) used.insert(name);
    }
  }
  for (const NumberFormats::Field& field : NumberFormats::fields()) {
    const char* const name = field.name;
    const TableColumn* column = table.find(name);
    if (!column || used.contains(name)) continue;
    std::set<std::string> texts;  // results without the column are of f32
    for (const std::size_t row : rows) texts.insert(format_name(*column, row));
    if (texts.size() < 2) continue;
    // How a recording is stored goes with its trace: only a mean over both is of neither.
    if (field.text == &NumberFormats::recorded &&
        is_one_per_cell(*column, rows, row_fields, column_fields))
      continue;
    throw ConfigError(
        "the rows differ in {0} ({1} and {2}), which is another computation: choose one with "
        "--where {0}=...",
        name, *texts.begin(), *texts.rbegin());
  }
  for (const char* name : {"selector", "method", matched.targets().empty() ? "budget" : "match",
                           "phase", "task", "model", "gamma", "protocol", "turn"}) {
    const TableColumn* column = table.find(name);
    if (!column || used.contains(name)) continue;
    std::set<std::string> texts;
    for (const std::size_t row : rows) {
      if (column->name != "match" || !matched.has_no_setting(row)) texts.insert(column->cell(row));
    }
    texts.erase("");  // full attention has no budget, which is no other one
    if (texts.size() < 2) continue;
    // "quoka tokens=512" in column method says the selector and the budget, and they say it
    const std::string_view which = name;
    const bool is_said = which == "method"     ? used.contains("selector")
                         : which == "selector" ? used.contains("method")
                         : which == "budget"   ? used.contains("method")
                                               : false;
    if (is_said && is_one_per_cell(*column, rows, row_fields, column_fields)) continue;
    throw ConfigError(
        "the rows differ in {0} ({1} to {2}): put it into the rows or columns, or choose one with "
        "--where {0}={1}",
        name, *texts.begin(), *texts.rbegin());
  }
}

BoundValue bind_value(const Table& table, const TableValue& value, const Rows& rows,
                      Spread spread) {
  BoundValue bound;
  const Texts names = split_words(value.column, '|');
  for (const std::string& name : names) {
    if (!bound.column) bound.column = table.find(name);
  }
  if (!bound.column) bound.column = &table.at(names.front());
  const std::string& name = bound.column->name;
  if (bound.column->is_text)
    throw ConfigError("column {} holds text, expected numbers", quote(name));
  if (std::all_of(rows.begin(), rows.end(),
                  [&](std::size_t row) { return std::isnan(bound.column->numbers[row]); }))
    throw ConfigError("column {} is empty in all {} rows", quote(name), rows.size());
  const auto metric = find_metric(name);
  bound.title = !value.title.empty() ? value.title : metric ? metric->title : name;
  bound.better = value.better.value_or(metric ? metric->better : Better::neither);
  bound.format = value.format.value_or(metric ? metric->format : NumberFormat{});
  bound.derive = value.derive;
  bound.quantity = metric ? metric->quantity : name;
  // Also where it is not shown: it decides what is marked.
  const std::string stem = name.ends_with("_mean") ? name.substr(0, name.size() - 5) : name;
  const auto end = [&](const char* which) {
    const TableColumn* column = table.find(stem + which);
    return column && !column->is_text ? column : nullptr;
  };
  bound.low = end("_low");
  bound.high = end("_high");
  if (spread == Spread::recorded && (!bound.low || !bound.high)) {
    throw ConfigError("the result records no interval of {}: expected columns {} and {}",
                      quote(name), stem + "_low", stem + "_high");
  }
  return bound;
}

const CellSample* TablePivot::find(std::size_t row, const KeyTexts& column,
                                   std::size_t value) const {
  const auto exact = samples.find({row, column, value});
  if (exact != samples.end() && exact->second.n > 0) return &exact->second;
  const auto first = samples.lower_bound({row, {}, 0});
  for (auto it = first; it != samples.end() && std::get<0>(it->first) == row; ++it) {
    const KeyTexts& key = std::get<1>(it->first);
    if (std::get<2>(it->first) != value || it->second.n == 0) continue;
    bool fits = false;
    for (std::size_t l = 0; l < key.size(); ++l) {
      if (!key[l].empty() && key[l] != column[l]) {
        fits = false;
        break;
      }
      fits = fits || key[l].empty();
    }
    if (fits) return &it->second;
  }
  return nullptr;
}

TablePivot make_pivot(const Rows& rows, const Fields& row_fields, const Fields& column_fields,
                      const std::vector<BoundValue>& values, const Table& table,
                      const MatchedRows& matched) {
  TablePivot pivot;
  const TableColumn* const doubt = table.find("doubt");
  const TableColumn* const density = table.has("density") ? table.find("density") : nullptr;
  for (const std::size_t row : rows) {
    const std::size_t r = pivot.rows.find_or_add(keys_of(row_fields, row));
    if (r == pivot.roles.size()) pivot.roles.push_back(role_of(row_fields, row));
    const std::vector<FieldKey> column = keys_of(column_fields, row);
    if (is_whole(column)) {
      const std::size_t c = pivot.columns.find_or_add(column);
      if (c == pivot.column_roles.size()) pivot.column_roles.push_back(role_of(column_fields, row));
    }
    for (std::size_t v = 0; v < values.size(); ++v) {
      const BoundValue& value = values[v];
      CellSample& sample = pivot.samples[{r, texts_of(column), v}];
      sample.add(row, value.column->numbers[row], value.low ? value.low->numbers[row] : kNan,
                 value.high ? value.high->numbers[row] : kNan);
      sample.is_doubted = sample.is_doubted || (doubt && !doubt->cell(row).empty());
      sample.keeps_all = sample.keeps_all && density && density->numbers[row] == 1.0;
      sample.missed_cost = sample.missed_cost || !matched.why_missed(row).empty();
    }
    if (pivot.rows.keys.size() * std::max<std::size_t>(1, pivot.columns.keys.size()) *
            values.size() >
        kMaxCells) {
      throw ConfigError(
          "the table would have more than {} cells: choose fields with fewer values, "
          "or some of the rows with --where",
          kMaxCells);
    }
  }
  for (const auto& [key, sample] : pivot.samples) {
    if (sample.n > 1 && table.has("layer") &&
        values[std::get<2>(key)].column->name == "predicted_speedup")
      throw ConfigError(
          "the mean of the layers' predicted_speedup is no speedup: take --value "
          "predicted_us,predicted_dense_us, or put layer into the rows or columns");
  }
  if (pivot.columns.keys.empty()) {
    if (!column_fields.empty())
      throw ConfigError("no row has a value of {}: nothing to make columns of",
                        column_fields.front().columns().front());
    pivot.columns.find_or_add({});
    pivot.column_roles.push_back(RowRole::method);
  }
  return pivot;
}

std::vector<std::size_t> column_order(const TablePivot& pivot) {
  const PivotKeys& list = pivot.columns;
  const std::size_t n_levels = list.keys.empty() ? 0 : list.keys.front().size();
  std::vector<std::map<std::string, std::size_t>> first_seen(n_levels);
  for (const auto& key : list.keys) {
    for (std::size_t l = 0; l < n_levels; ++l)
      first_seen[l].try_emplace(std::isnan(key[l].number) ? key[l].text : key[l].unit,
                                first_seen[l].size());
  }
  std::vector<std::size_t> order(list.keys.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    for (std::size_t l = 0; l < n_levels; ++l) {
      const FieldKey& x = list.keys[a][l];
      const FieldKey& y = list.keys[b][l];
      const auto place = [&](const FieldKey& k) {
        return first_seen[l].at(std::isnan(k.number) ? k.text : k.unit);
      };
      if (place(x) != place(y)) return place(x) < place(y);
      if (!std::isnan(x.number) && !std::isnan(y.number) && x.number != y.number)
        return x.number < y.number;
    }
    return false;
  });
  return order;
}

std::vector<std::size_t> row_order(const TablePivot& pivot) {
  std::map<Texts, std::size_t> groups;
  std::vector<std::size_t> group_of;
  for (const auto& key : pivot.rows.keys) {
    Texts texts = texts_of(key);
    texts.pop_back();
    group_of.push_back(groups.try_emplace(texts, groups.size()).first->second);
  }
  const auto rank = [&](std::size_t r) {
    constexpr int kPlace[] = {1, 0, 2, 3};  // by RowRole
    return std::pair(group_of[r], kPlace[static_cast<std::size_t>(pivot.roles[r])]);
  };
  std::vector<std::size_t> order(pivot.rows.keys.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const bool numbers = std::none_of(pivot.rows.keys.begin(), pivot.rows.keys.end(),
                                    [](const auto& key) { return std::isnan(key.back().number); });
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    return numbers && pivot.rows.keys[a].back().number < pivot.rows.keys[b].back().number;
  });
  return order;
}

}  // namespace kvscope
