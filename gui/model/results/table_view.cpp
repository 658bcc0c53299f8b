#include "gui/model/results/table_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "analysis/base/analysis.hpp"
#include "core/base/csv_text.hpp"
#include "core/base/error.hpp"
#include "core/base/number_text.hpp"
#include "core/selectors/registry.hpp"
#include "gui/model/session/find_words.hpp"

namespace kvscope::gui {

namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::optional<double> number_in(std::string_view text) {
  return number_from<double>(trimmed(text));
}

/// Empty for a text that says nothing (yet): ">", "".
struct NumberTest {
  std::function<bool(double)> passes;
  bool is_valid = true;
};

NumberTest number_test(std::string_view text) {
  text = trimmed(text);
  if (text.empty()) return {};
  if (text == "empty") return {[](double v) { return std::isnan(v); }};
  if (text == "!empty") return {[](double v) { return !std::isnan(v); }};
  if (const auto dots = text.find(".."); dots != std::string_view::npos) {
    const auto low = number_in(text.substr(0, dots));
    const auto high = number_in(text.substr(dots + 2));
    if (!low && trimmed(text.substr(0, dots)).size() > 0) return {{}, false};
    if (!high && trimmed(text.substr(dots + 2)).size() > 0) return {{}, false};
    return {[low, high](double v) {
      return !std::isnan(v) && (!low || v >= *low) && (!high || v <= *high);
    }};
  }
  const auto operand = [&](std::size_t length) { return text.substr(length); };
  const auto compare = [&](std::size_t length, auto test) -> NumberTest {
    if (trimmed(operand(length)).empty()) return {};
    const auto number = number_in(operand(length));
    if (!number) return {{}, false};
    return {[number = *number, test](double v) { return !std::isnan(v) && test(v, number); }};
  };
  if (text.starts_with(">=")) return compare(2, std::greater_equal<>());
  if (text.starts_with("<=")) return compare(2, std::less_equal<>());
  if (text.starts_with("!=")) return compare(2, std::not_equal_to<>());
  if (text.starts_with(">")) return compare(1, std::greater<>());
  if (text.starts_with("<")) return compare(1, std::less<>());
  if (text.starts_with("=")) return compare(1, std::equal_to<>());
  return compare(0, std::equal_to<>());
}

bool word_passes(std::string_view word, std::string_view filter) {
  if (filter.starts_with("=")) return word == filter.substr(1);
  const bool negated = filter.starts_with("!");
  if (negated) filter.remove_prefix(1);
  if (filter.empty()) return true;
  return (lowered(word).find(lowered(filter)) != std::string::npos) != negated;
}

void keep_passing(std::vector<std::uint32_t>& rows, const TableColumn& column,
                  std::string_view text) {
  if (column.is_text) {
    std::vector<char> passes;
    for (const std::string& word : column.words.categories) {
      passes.push_back(word_passes(word, trimmed(text)));
    }
    std::erase_if(rows, [&](std::uint32_t row) {
      return passes[static_cast<std::size_t>(column.words.codes[row])] == 0;
    });
    return;
  }
  const NumberTest test = number_test(text);
  if (!test.passes) return;
  std::erase_if(rows, [&](std::uint32_t row) { return !test.passes(column.numbers[row]); });
}

/// Sortable numbers of a column: words by their place in the alphabet, empty cells NaN.
std::vector<double> sort_keys(const TableColumn& column) {
  if (!column.is_text) return column.numbers;
  const auto& words = column.words.categories;
  std::vector<std::size_t> order(words.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return words[a] < words[b]; });
  std::vector<double> rank(words.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    rank[order[i]] = words[order[i]].empty() ? std::nan("") : static_cast<double>(i);
  }
  std::vector<double> keys;
  keys.reserve(column.words.codes.size());
  for (const std::int32_t code : column.words.codes) {
    keys.push_back(rank[static_cast<std::size_t>(code)]);
  }
  return keys;
}

std::optional<Index> whole_number(const Table& table, std::string_view column, std::size_t row) {
  if (!table.has(column)) return std::nullopt;
  const double value = table.numbers(column)[row];
  const bool is_index = value >= 0.0 && value <= 1e15 && value == std::floor(value);
  return is_index ? std::optional(static_cast<Index>(value)) : std::nullopt;
}

template <std::size_t N>
std::optional<Index> first_of(const Table& table, const char* const (&columns)[N],
                              std::size_t row) {
  for (const char* column : columns) {
    if (const auto found = whole_number(table, column, row)) return found;
  }
  return std::nullopt;
}

std::optional<std::string> known_selector(const Table& table, std::size_t row) {
  if (!table.has_text("selector")) return std::nullopt;
  const std::string& name = table.text("selector").at(row);
  try {
    const MethodSpec known(name);
    return known.text().empty() ? std::nullopt : std::optional(name);
  } catch (const Error&) {
    return std::nullopt;  // "dense", or a method of another version
  }
}

}  // namespace

std::string TableArrangement::key() const {
  std::string key = fmt::format("{}/{}", sort_column, descending ? "down" : "up");
  for (const ColumnFilter& filter : filters) {
    if (!filter.text.empty()) key += fmt::format("/{}={}", filter.column, filter.text);
  }
  return key;
}

std::string TableArrangement::filter_words() const {
  std::string words;
  for (const ColumnFilter& filter : filters) {
    if (filter.text.empty()) continue;
    words += fmt::format("{}{}: {}", words.empty() ? "" : ", ", filter.column, filter.text);
  }
  return words;
}

bool is_valid_filter(const TableColumn& column, std::string_view text) {
  return column.is_text || number_test(text).is_valid;
}

RowOrder arrange_rows(const Table& table, const TableArrangement& arrangement,
                      const std::stop_token& stop) {
  RowOrder order;
  order.rows.resize(table.n_rows());
  std::iota(order.rows.begin(), order.rows.end(), std::uint32_t{0});
  for (const ColumnFilter& filter : arrangement.filters) {
    check_stop(stop, "the list");
    const TableColumn* column = table.find(filter.column);
    if (column != nullptr && !filter.text.empty()) keep_passing(order.rows, *column, filter.text);
  }
  const TableColumn* by = table.find(arrangement.sort_column);
  if (by == nullptr) return order;
  check_stop(stop, "the list");
  const std::vector<double> keys = sort_keys(*by);
  const bool descending = arrangement.descending;
  std::ranges::stable_sort(order.rows, [&](std::uint32_t a, std::uint32_t b) {
    const double x = keys[a];
    const double y = keys[b];
    if (std::isnan(x) || std::isnan(y)) return !std::isnan(x) && std::isnan(y);
    return descending ? x > y : x < y;
  });
  return order;
}

std::vector<std::size_t> reading_order(const Table& table) {
  static constexpr std::string_view kNames[] = {"trace",    "file",   "phase",  "method",
                                                "selector", "pair",   "budget", "budget_kind",
                                                "layer",    "q_head", "head",   "kv_head"};
  const auto& columns = table.columns();
  std::vector<std::size_t> order(columns.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const bool by_alphabet = std::ranges::is_sorted(
      columns, [](const TableColumn& a, const TableColumn& b) { return a.name < b.name; });
  if (!by_alphabet) return order;
  const auto rank = [&](std::size_t c) {
    const auto found = std::find(std::begin(kNames), std::end(kNames), columns[c].name);
    const bool is_name = found != std::end(kNames);
    // Other words say what a line is about as well.
    return is_name ? found - std::begin(kNames) : std::ssize(kNames) + (columns[c].is_text ? 0 : 1);
  };
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
  return order;
}

std::string short_cell(const TableColumn& column, std::size_t row) {
  if (column.is_text) return column.words.at(row);
  const double value = column.numbers[row];
  if (std::isnan(value)) return {};
  return number_text(value, 6);
}

std::string rows_csv(const Table& table, std::span<const std::uint32_t> rows,
                     std::span<const std::string> columns) {
  std::vector<const TableColumn*> shown;
  std::string csv;
  for (const std::string& name : columns) {
    shown.push_back(&table.at(name));
    if (shown.size() > 1) csv += ',';
    csv += csv_field(name);
  }
  csv += '\n';
  for (const std::uint32_t row : rows) {
    for (std::size_t c = 0; c < shown.size(); ++c) {
      if (c > 0) csv += ',';
      const TableColumn& column = *shown[c];
      const bool is_number = !column.is_text && std::isfinite(column.numbers[row]);
      if (is_number) fmt::format_to(std::back_inserter(csv), "{}", column.numbers[row]);
      if (column.is_text) csv += csv_field(column.words.at(row));
    }
    csv += '\n';
  }
  return csv;
}

std::string RowTarget::words() const {
  std::vector<std::string> parts;
  if (layer) parts.push_back(fmt::format("layer {}", *layer));
  if (q_head) parts.push_back(fmt::format("query head {}", *q_head));
  if (query) parts.push_back(fmt::format("query {}", *query));
  if (key) parts.push_back(fmt::format("key {}", *key));
  if (selector) parts.push_back(*selector);
  if (budget) parts.push_back(fmt::format("budget {}", *budget));
  if (nucleus) parts.push_back(fmt::format("p = {}", *nucleus));
  return fmt::format("{}", fmt::join(parts, ", "));
}

RowTarget target_of(const Table& table, std::size_t row) {
  RowTarget target;
  if (row >= table.n_rows()) return target;
  target.layer = first_of(table, {"layer", "verifier_layer"}, row);
  target.q_head = first_of(table, {"q_head", "head"}, row);
  target.query = first_of(table, {"query", "row", "step", "query_pos", "pos", "verified"}, row);
  target.key = first_of(table, {"key", "key_pos"}, row);
  // "row" also counts rows: only coordinates of an array, which has a value and no selector.
  if (table.has_text("selector")) target.query.reset();
  target.selector = known_selector(table, row);
  if (!table.has("budget")) return target;
  const double budget = table.numbers("budget")[row];
  const std::string kind =
      table.has_text("budget_kind") ? table.text("budget_kind").at(row) : std::string("tokens");
  if (kind == "tokens") target.budget = whole_number(table, "budget", row);
  if (target.budget == Index{0}) target.budget.reset();
  if (kind == "p" && budget > 0.0 && budget <= 1.0) target.nucleus = budget;
  return target;
}

RowTarget target_of_cell(const plot::Panel& panel, Index row, Index col) {
  RowTarget target;
  if (panel.x.label != "Query head" || panel.y.label != "Layer") return target;
  // Cells are [i, i + 1), and their ticks say which layer or head they are.
  const auto named = [](const plot::Axis& axis, Index cell) -> std::optional<Index> {
    for (const plot::Tick& tick : axis.ticks) {
      if (std::floor(tick.at) != static_cast<double>(cell)) continue;
      if (const auto number = number_from<Index>(tick.label)) return number;
    }
    return std::nullopt;
  };
  target.layer = named(panel.y, row);
  target.q_head = named(panel.x, col);
  return target;
}

bool is_about_selection(const Table& table, std::size_t row, const Session& session) {
  const Selection& s = session.selection();
  const auto layer = first_of(table, {"layer", "verifier_layer"}, row);
  const auto head = first_of(table, {"q_head", "head"}, row);
  if (layer != s.layer || (head && *head != s.q_head)) return false;
  if (table.has_text("selector") && table.text("selector").at(row) != s.selector) return false;
  const RowTarget target = target_of(table, row);
  if (target.budget) return *target.budget == session.parameters().budget;
  if (target.nucleus) return *target.nucleus == session.parameters().nucleus;
  return !table.has("budget") || !(table.numbers("budget")[row] > 0.0);
}

void go_to(Session& session, const RowTarget& target, std::string_view origin) {
  if (target.empty()) return;
  session.select(origin, [&](Selection& s) {
    if (target.layer) s.layer = *target.layer;
    if (target.q_head) s.q_head = *target.q_head;
    if (target.query) s.query = *target.query;
    if (target.key) s.key = *target.key;
    if (target.selector) s.selector = *target.selector;
  });
  if (!target.budget && !target.nucleus) return;
  session.set_parameters(origin, [&](Parameters& p) {
    if (target.budget) p.budget = *target.budget;
    if (target.nucleus) p.nucleus = *target.nucleus;
  });
}

}  // namespace kvscope::gui
