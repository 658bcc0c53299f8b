#include "analysis/figures/method_rows.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "analysis/base/mapped.hpp"
#include "analysis/figures/maps.hpp"
#include "analysis/figures/spec.hpp"
#include "analysis/plot/rich_text.hpp"
#include "analysis/sweep/match_rows.hpp"
#include "core/base/nan.hpp"

namespace kvscope::figures {

std::vector<MethodRows> method_rows(const Table& table, const FigureOptions& options,
                                    BudgetInLabel budget,
                                    const std::function<bool(std::size_t)>& counts) {
  const TextColumn& selectors = table.text("selector");
  const Wanted wanted(options.selector, selectors.categories);
  const TextColumn* const cards = table.has_text("hardware") ? &table.text("hardware") : nullptr;
  std::map<std::string, std::set<std::string>> budgets_of;
  for (std::size_t r = 0; r < table.n_rows(); ++r)
    budgets_of[selectors.at(r)].insert(budget_label(table, r));
  std::vector<MethodRows> methods;
  std::vector<std::string> looks;
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    const std::string& selector = selectors.at(r);
    if (!wanted.has(selector) || !counts(r)) continue;
    std::string more = budget_label(table, r);
    if (budget == BudgetInLabel::if_several && budgets_of[selector].size() == 1) more.clear();
    if (!more.empty()) more.insert(0, ", ");
    if (cards != nullptr && cards->categories.size() > 1)
      more += ", " + plot::verbatim(cards->at(r));
    const std::string label = method_label(selector) + more;
    auto found = std::ranges::find(methods, label, &MethodRows::label);
    if (found == methods.end()) {
      found = methods.insert(found, {selector, label, {}, {}});
      looks.push_back(selector + ":" + more);
    }
    found->rows.push_back(r);
  }
  const MethodTones tones(looks);
  for (std::size_t m = 0; m < methods.size(); ++m) methods[m].tone = tones.of(looks[m]);
  return methods;
}

RowNumbers RowNumbers::in(double unit) const {
  const auto times = [&](const std::vector<double>& all) {
    return mapped<double>(all, [&](double x) { return unit * x; });
  };
  return {times(values), times(low), times(high), weights};
}

RowNumbers numbers_with_ends(const Table& table, const std::string& column) {
  const auto read = [&](const std::string& name) {
    const auto numbers = table.numbers(name);
    return std::vector<double>(numbers.begin(), numbers.end());
  };
  if (!table.has(column)) return {std::vector<double>(table.n_rows(), kNan)};
  RowNumbers out{read(column)};
  if (!table.has(column + "_low") || !table.has(column + "_high")) return out;
  out.low = read(column + "_low");
  out.high = read(column + "_high");
  return out;
}

void RowMean::add(const RowNumbers& numbers, std::size_t row) {
  if (!std::isfinite(numbers.values[row])) return;
  const double of_row = numbers.weights.empty() ? 1.0 : numbers.weights[row];
  sum += of_row * numbers.values[row];
  weight += of_row;
  if (!numbers.low.empty()) ends.add(numbers.low[row], numbers.high[row]);
  rows.push_back(row);
}

std::vector<MethodRows> at_common_places(const Table& table, std::vector<MethodRows> methods,
                                         std::span<const double> x, const RowNumbers& numbers,
                                         std::vector<std::string>& caption) {
  // lines of several cards have their cards in their labels
  const TableColumn* const cards = table.find("hardware");
  std::map<std::pair<double, std::string>, std::vector<std::size_t>> rows_at;
  std::map<std::size_t, std::size_t> line_of;
  for (std::size_t m = 0; m < methods.size(); ++m) {
    for (const std::size_t row : std::exchange(methods[m].rows, {})) {
      if (std::isnan(x[row]) || !std::isfinite(numbers.values[row])) {
        methods[m].rows.push_back(row);  // a gap
        continue;
      }
      rows_at[{x[row], cards == nullptr ? "" : cards->cell(row)}].push_back(row);
      line_of[row] = m;
    }
  }
  CommonRows all;
  bool has_common = true;
  for (const auto& [place, rows] : rows_at) {
    const CommonRows common = common_rows(
        rows, [&](std::size_t row) { return methods[line_of[row]].label; },
        [&](std::size_t row) { return words_of_place(table, row); });
    for (const std::size_t row : common.rows) methods[line_of[row]].rows.push_back(row);
    all.n_places += common.n_places;
    all.n_left_out += common.n_left_out;
    has_common = has_common && common.has_common;
  }
  const std::string sentence =
      has_common
          ? all.sentence("place")
          : "Some points are means over different places: no place has numbers of all there.";
  if (!sentence.empty() && std::ranges::find(caption, sentence) == caption.end())
    caption.push_back(sentence);
  return methods;
}

std::map<double, RowMean> points_of(const MethodRows& method, std::span<const double> x,
                                    const RowNumbers& numbers) {
  std::map<double, RowMean> points;
  for (const std::size_t row : method.rows)
    if (!std::isnan(x[row])) points[x[row]].add(numbers, row);
  return points;
}

std::vector<RowMean> cells_of(const MethodRows& method, std::span<const double> x,
                              std::span<const double> y, const RowNumbers& numbers,
                              const std::vector<double>& xs, const std::vector<double>& ys) {
  std::vector<RowMean> cells(xs.size() * ys.size());
  const auto place_in = [](const std::vector<double>& axis, double value) {
    return static_cast<std::size_t>(std::ranges::lower_bound(axis, value) - axis.begin());
  };
  for (const std::size_t row : method.rows) {
    if (std::isnan(x[row]) || std::isnan(y[row])) continue;
    cells[place_in(ys, y[row]) * xs.size() + place_in(xs, x[row])].add(numbers, row);
  }
  return cells;
}

void add_lines(plot::Panel& panel, const Table& table, const std::vector<MethodRows>& methods,
               std::span<const double> x, const RowNumbers& y, std::vector<std::string>& caption) {
  const bool is_linear = panel.y.scale == plot::ScaleKind::linear;
  std::vector<std::vector<std::size_t>> groups;
  for (const MethodRows& method : at_common_places(table, methods, x, y, caption)) {
    plot::Line line{.label = method.label, .tone = method.tone};
    bool is_known = false;
    for (const auto& [place, mean] : points_of(method, x, y)) {
      const bool is_shown = !mean.rows.empty() && (is_linear || mean.value() > 0.0);
      is_known = is_known || is_shown;
      groups.push_back(mean.rows);
      line.add(place, is_shown ? mean.value() : kNan);
      if (y.low.empty()) continue;
      line.low.push_back(is_shown ? mean.ends.low() : kNan);
      line.high.push_back(is_shown ? mean.ends.high() : kNan);
    }
    if (is_known) panel.marks.emplace_back(std::move(line));
  }
  say_means(table, groups, caption);
}

void say_means(const Table& table, const std::vector<std::vector<std::size_t>>& groups,
               std::vector<std::string>& caption) {
  const std::string over = means_over(table, groups);
  if (!over.empty() && std::ranges::find(caption, over) == caption.end()) caption.push_back(over);
}

namespace {

/// "a, b": the words of a column, none of them empty; empty without such a column.
std::string words_in(const Table& table, std::string_view column) {
  std::vector<std::string> words;
  if (table.has_text(column)) words = table.text(column).categories;
  std::erase(words, "");
  return plot::verbatim(fmt::format("{}", fmt::join(words, ", ")));
}

}  // namespace

void say_match(const Table& table, const std::vector<MethodRows>& methods,
               std::vector<std::string>& caption) {
  const std::string targets = words_in(table, "match");
  if (targets.empty()) return;
  caption.push_back(fmt::format("Budgets are set so that the measured cost is {}.", targets));
  const MatchedRows matched(table);
  LeftOut missed;
  for (const MethodRows& method : methods)
    for (const std::size_t row : method.rows)
      if (const std::string why = matched.why_missed(row); !why.empty())
        missed.add(method.label, why);
  missed.say("Another cost", caption);
}

void say_cards(const Table& table, std::vector<std::string>& caption) {
  const std::string cards = words_in(table, "hardware");
  const std::string phases = words_in(table, "phase");
  if (!cards.empty() && !phases.empty())
    caption.push_back(fmt::format("Of {}: {}.", cards, phases));
}

std::vector<double> values_of(const std::vector<MethodRows>& methods,
                              std::span<const double> column) {
  std::set<double> values;
  for (const MethodRows& method : methods)
    for (const std::size_t row : method.rows)
      if (!std::isnan(column[row])) values.insert(column[row]);
  return {values.begin(), values.end()};
}

Table rows_of_array(const ResultView& result, const std::string& array, const std::string& column,
                    const std::vector<std::pair<std::string, std::string>>& axes,
                    const Table& pairs, std::size_t step) {
  const ArrayData data(result, array);
  Shape shape{data.spec.shape[0]};
  std::vector<std::vector<double>> numbers;
  for (const auto& [name, of] : axes) {
    numbers.push_back(result.read(of));
    shape.dim[static_cast<std::size_t>(shape.rank++)] = static_cast<Index>(numbers.back().size());
  }
  data.require_shape(shape);
  const auto per_pair = static_cast<std::size_t>(shape.count() / std::max<Index>(1, shape[0]));
  // rows behind the array's are of methods that could not be run (a match that they refused)
  const std::size_t n_rows =
      per_pair * std::min((pairs.n_rows() + step - 1) / step, static_cast<std::size_t>(shape[0]));
  Table rows(pairs.name());
  for (const char* name :
       {"selector", "budget", "budget_kind", "kept", "match", "match_reached", "match_note"}) {
    const TableColumn* const own = pairs.find(name);
    if (own == nullptr) continue;
    TextColumnBuilder words;
    std::vector<double> values;
    for (std::size_t row = 0; row < n_rows; ++row) {
      const std::size_t pair = row / per_pair * step;
      own->is_text ? words.add(own->words.at(pair)) : values.push_back(own->numbers[pair]);
    }
    own->is_text ? rows.add_text(name, words.take()) : rows.add_numbers(name, std::move(values));
  }
  std::size_t stride = per_pair;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    stride /= std::max<std::size_t>(1, numbers[a].size());
    std::vector<double> places;
    for (std::size_t row = 0; row < n_rows; ++row)
      places.push_back(numbers[a][row / stride % numbers[a].size()]);
    rows.add_numbers(axes[a].first, std::move(places));
  }
  rows.add_numbers(
      column, {data.values.begin(), data.values.begin() + static_cast<std::ptrdiff_t>(n_rows)});
  return rows;
}

}  // namespace kvscope::figures
