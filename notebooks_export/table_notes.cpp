#include "notebooks_export/table_notes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "analysis/base/number_formats.hpp"
#include "analysis/base/statistics.hpp"
#include "core/base/lists.hpp"
#include "core/base/number_text.hpp"

namespace kvscope {

namespace {

constexpr std::string_view kSpreadNames[] = {"", "the recorded interval", "the standard deviation",
                                             "smallest and largest value"};

bool is_full(const std::vector<TableField>& fields, std::size_t row) {
  return std::any_of(fields.begin(), fields.end(), [&](const TableField& field) {
    return field.is_method() && role_of_method(field.method(row)) == RowRole::full;
  });
}

}  // namespace

std::string subject_sentence(const Table& table, const RowSlots& rows,
                             const std::vector<TableField>& fields) {
  std::set<std::string> said;
  for (const TableField& field : fields) {
    for (const std::string& column : field.columns()) said.insert(column);
  }
  /// What all rows that say it agree in; empty if they do not, or a field shows it.
  const auto common = [&](const char* name) -> std::string {
    const TableColumn* column = table.find(name);
    if (!column || said.contains(name)) return "";
    std::set<std::string> cells;
    for (const std::size_t row : rows) cells.insert(column->cell(row));
    cells.erase("");
    return cells.size() == 1 ? *cells.begin() : "";
  };
  std::vector<std::string> parts;
  const auto add = [&](const char* before, const std::string& text, const char* after = "") {
    if (!text.empty()) parts.push_back(before + text + after);
  };
  add("", common("model"));
  add("", common("trace"));
  add("", common("phase"));
  add("task ", common("task"));
  add("", common("kind"));
  add("layer ", common("layer"));
  add("", common("length"), " tokens");
  add("", common("n_tokens"), " tokens");
  const std::string budget = common("budget");
  const TableColumn* const kinds = table.find("budget_kind");
  std::set<std::string> units;
  for (const std::size_t row : rows) units.insert(kinds ? kinds->cell(row) : "");
  units.erase("none");
  if (!budget.empty() && units.size() == 1)
    add("budget ", (units.begin()->empty() ? "" : *units.begin() + "=") + budget);
  std::string text = fmt::format("{}", fmt::join(parts, ", "));
  const auto n_of = [&](const char* name, const char* what) {
    const TableColumn* column = table.find(name);
    if (!column || column->is_text || said.contains(name)) return;
    double least = std::numeric_limits<double>::infinity();
    double most = 0.0;
    for (const std::size_t row : rows) {
      if (std::isnan(column->numbers[row])) continue;
      least = std::min(least, column->numbers[row]);
      most = std::max(most, column->numbers[row]);
    }
    if (most <= 0.0) return;
    text += least == most
                ? fmt::format("{}n = {} {}", text.empty() ? "" : "; ", most, what)
                : fmt::format("{}n = {} to {} {}", text.empty() ? "" : "; ", least, most, what);
  };
  n_of("prompts", "prompts");
  n_of("scored_tokens", "scored tokens");
  n_of("rows", table.find("layer") ? "query rows of each layer" : "query rows");
  if (text.empty()) return text;
  return (parts.empty() ? text : "Of " + text) + ".";
}

std::string mean_sentence(const TablePivot& pivot, Spread spread, const std::string& dense) {
  std::size_t least = std::numeric_limits<std::size_t>::max();
  std::size_t most = 0;
  for (const auto& [key, sample] : pivot.samples) {
    if (sample.n == 0) continue;
    least = std::min(least, sample.n);
    most = std::max(most, sample.n);
  }
  std::string note;
  if (most > 1) {
    note = least == most
               ? fmt::format("Each cell is the mean of {} rows of the result", most)
               : fmt::format("Each cell is the mean of {} to {} rows of the result", least, most);
  }
  if (spread != Spread::none) {
    note += fmt::format("{}{}{}", note.empty() ? "Beside it: " : "; beside it: ",
                        kSpreadNames[static_cast<std::size_t>(spread)],
                        spread == Spread::recorded && most > 1 ? ", its ends averaged" : "");
  }
  if (!note.empty()) note += ".";
  if (!dense.empty())
    note += fmt::format("{}Rows that a method leaves dense count ({}).", note.empty() ? "" : " ",
                        dense);
  return note;
}

std::string dense_methods(const Table& table, const RowSlots& rows,
                          const std::vector<TableField>& fields) {
  const TableColumn* dense = table.find("dense");
  if (!dense || dense->is_text) return "";
  std::map<std::string, std::pair<std::size_t, std::size_t>> counts;  // dense, all
  KeyTexts order;
  for (const TableField& field : fields) {
    if (!field.is_method()) continue;
    for (const std::size_t row : rows) {
      if (role_of_method(field.method(row)) != RowRole::method) continue;
      const auto [found, is_new] = counts.try_emplace(field.key(row).text);
      if (is_new) order.push_back(found->first);
      found->second.first += dense->numbers[row] > 0 ? 1 : 0;
      ++found->second.second;
    }
  }
  std::string text;
  for (const std::string& name : order) {
    const auto [n_dense, n] = counts[name];
    if (n_dense > 0 && n_dense < n)
      text += fmt::format("{}{}: {} of {}", text.empty() ? "" : ", ", name, n_dense, n);
  }
  return text;
}

std::string missed_sentence(const Table& table, const MatchedRows& matched, const KeyTexts& targets,
                            const RowSlots& rows, const std::vector<TableField>& fields) {
  KeyTexts order;
  std::map<std::string, std::pair<Mean, std::string>> missed;  // reached, why
  const auto reached =
      table.has("match_reached") ? table.numbers("match_reached") : std::span<const double>();
  for (const std::size_t row : rows) {
    const std::string why = matched.why_missed(row);
    if (why.empty() || is_full(fields, row)) continue;
    std::string name = table.text("selector").at(row);
    for (const TableField& field : fields) {
      if (field.is_method()) name = field.key(row).text;
    }
    if (targets.size() > 1) name += ", " + table.text("match").at(row);
    const auto [found, is_new] = missed.try_emplace(name, Mean(), why);
    if (is_new) order.push_back(name);
    if (!reached.empty()) found->second.first.add(reached[row]);
  }
  if (order.empty()) return "";
  KeyTexts parts;
  for (const std::string& name : order) {
    const auto& [cost, why] = missed.at(name);
    parts.push_back(cost.n() > 0
                        ? fmt::format("{} ({}; {})", name, number_text(cost.value(), 3), why)
                        : fmt::format("{} ({})", name, why));
  }
  return fmt::format("† Another cost than {}, hence not marked: {}.",
                     targets.size() == 1 ? targets.front() : "was to be met",
                     fmt::join(parts, "; "));
}

std::string prompts_sentence(const LeftOut& left_out) {
  std::string text;
  for (const auto& [kind, lengths] : left_out.unsolved) {
    text += fmt::format(
        "{}{}{}", text.empty() ? "" : "; ", kind,
        lengths.front().empty() ? std::string() : fmt::format(" ({})", fmt::join(lengths, ", ")));
  }
  if (!text.empty())
    text = fmt::format("Prompts that the dense model does not answer are left out: {}.", text);
  if (left_out.kinds.size() > 1) {
    text += fmt::format("{}Averaged over the kinds {}.", text.empty() ? "" : " ",
                        fmt::join(left_out.kinds, ", "));
  }
  return text;
}

std::string doubts_sentence(const TableColumn* doubt, const RowSlots& rows) {
  if (!doubt || !doubt->is_text) return "";
  std::map<std::string, std::size_t> counts;
  for (const std::size_t row : rows) {
    for (const std::string& gate : split_words(doubt->cell(row), '+')) {
      if (!gate.empty()) ++counts[gate];
    }
  }
  std::string text;
  for (const auto& [gate, n] : counts) {
    text += fmt::format("{}{} ({} row{} of the result)", text.empty() ? "" : ", ", gate, n,
                        n == 1 ? "" : "s");
  }
  return text.empty() ? text : fmt::format("Not marked, since gates doubt it: {}.", text);
}

std::string whole_sentence(const Table& table, const RowSlots& rows,
                           const std::vector<TableField>& fields) {
  if (!table.has("density")) return "";
  const auto density = table.numbers("density");
  std::map<std::string, bool> keeps_all;  // by method
  KeyTexts order;
  for (const TableField& field : fields) {
    if (!field.is_method()) continue;
    for (const std::size_t row : rows) {
      if (role_of_method(field.method(row)) != RowRole::method) continue;
      const auto [found, is_new] = keeps_all.try_emplace(field.key(row).text, true);
      if (is_new) order.push_back(found->first);
      found->second = found->second && density[row] == 1.0;
    }
  }
  std::erase_if(order, [&](const std::string& name) { return !keeps_all.at(name); });
  if (order.empty()) return "";
  return fmt::format("Not marked, since {} every key: {}.",
                     order.size() == 1 ? "it keeps" : "they keep", fmt::join(order, ", "));
}

std::string marks_sentence(const MarkedBy& by, const std::string& units) {
  if (by.has_units) {
    return fmt::format(
        "Bold: apart from every other value by the 95 % interval of the paired difference over {}; "
        "underlined: from all but the bold one.{}",
        units, by.is_undecided ? " No mark where the first two cannot be told apart." : "");
  }
  return by.has_intervals && by.is_undecided
             ? "No mark where the recorded interval of the best holds another."
             : "";
}

std::string formats_sentence(const Table& table, const RowSlots& rows) {
  NumberFormats first;  // of the rows that are not of f32
  std::size_t n = 0;
  for (const std::size_t row : rows) {
    NumberFormats formats;
    for (const NumberFormats::Field& field : NumberFormats::fields()) {
      if (table.has_text(field.name)) formats.*field.text = table.text(field.name).at(row);
    }
    if (formats.are_f32()) continue;
    if (n++ == 0) first = formats;
  }
  if (n == 0 || n == rows.size()) return first.sentence();
  return fmt::format("{} ({} of {} rows)", first.sentence(), n, rows.size());
}

}  // namespace kvscope
