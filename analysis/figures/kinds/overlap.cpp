// Which keys methods share: a method per row and column, and in the last column all the others.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/figures/maps.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"
#include "core/selectors/selector.hpp"

namespace kvscope {

namespace {

constexpr const char* kOthers = "others";

plot::Figure make_overlap(const FigureInput& input) {
  const ResultView& result = *input.results[0];
  const Json* couples = list_at(result.summary(), "couples");
  if (couples == nullptr) throw FormatError("{}: the summary has no couples", result.name());
  const std::string metric = input.options.metric.empty() ? "jaccard" : input.options.metric;
  const char* label =
      std::array{"Jaccard index of the keys", "Attention on keys that both keep",
                 "Attention that the row keeps and the column drops"}[figures::metric_slot(
          metric, {"jaccard", "shared_mass", "first_mass"})];

  std::vector<std::string> budgets;
  for (const Json& one : *couples) {
    if (std::ranges::find(budgets, text_at(one, "budget")) == budgets.end())
      budgets.push_back(text_at(one, "budget"));
  }
  std::string budget = budgets[budgets.size() / 2];
  if (!input.options.budget.empty()) budget = Budget::parse(input.options.budget).to_string();
  if (std::ranges::find(budgets, budget) == budgets.end()) {
    figures::fail_empty(result.name(), fmt::format("budget: there is no {}; choose from {}", budget,
                                                   fmt::join(budgets, ", ")));
  }

  std::vector<const Json*> shown;
  std::vector<std::string> methods;
  for (const Json& one : *couples) {
    if (text_at(one, "budget") != budget) continue;
    shown.push_back(&one);
    for (const char* side : {"first", "second"}) {
      const std::string name = text_at(one, side);
      if (name != kOthers && std::ranges::find(methods, name) == methods.end())
        methods.push_back(name);
    }
  }
  const std::size_t n = methods.size();
  const bool has_others = std::ranges::any_of(
      shown, [](const Json* one) { return text_at(*one, "second") == kOthers; });
  const std::size_t n_columns = n + (has_others ? 1 : 0);
  std::vector<double> values(n * n_columns, kNan);
  const auto slot = [&](const std::string& name) {  // n: the others
    return static_cast<std::size_t>(std::ranges::find(methods, name) - methods.begin());
  };
  for (const Json* one : shown) {
    const std::size_t a = slot(text_at(*one, "first"));
    const std::size_t b = slot(text_at(*one, "second"));
    const auto put = [&](std::size_t row, std::size_t column, const std::string& key) {
      if (row < n) values[row * n_columns + column] = number_at(*one, key);
    };
    put(a, b, metric);
    put(b, a, metric == "first_mass" ? "second_mass" : metric);
  }

  std::vector<double> rows, columns;
  std::vector<plot::Tick> row_names, column_names;  // columns by number: names would not fit
  for (std::size_t i = 0; i < n_columns; ++i) {
    columns.push_back(static_cast<double>(i));
    const double middle = static_cast<double>(i) + 0.5;
    const std::string number = fmt::format("{}", i + 1);
    column_names.push_back({middle, i < n ? number : kOthers});
    if (i == n) break;
    rows.push_back(static_cast<double>(i));
    row_names.push_back({middle, figures::method_label(methods[i]) + " " + number});
  }
  plot::Panel panel = figures::head_panel(
      rows, columns, values, {.axis = {.label = label, .format = plot::TickFormat::percent}});
  std::get<plot::HeatMap>(panel.marks[0]).print_values = true;
  panel.x.label = panel.y.label = "";
  panel.x.ticks = std::move(column_names);
  panel.y.has_names = panel.y.reversed = true;
  panel.y.ticks = std::move(row_names);
  plot::Figure figure;
  figure.panels.push_back(std::move(panel));
  figure.caption.push_back(
      fmt::format("Keys before each call{}, means over rows, heads and layers that choose. Columns "
                  "have the numbers of the rows{}.",
                  budget.empty() ? "" : fmt::format(" at {}", budget),
                  has_others ? "; others: what any other method keeps" : ""));
  return figure;
}

}  // namespace

FigureKind figure_overlap() {
  return {
      .name = "overlap",
      .shows = "which keys methods share, two by two and each with all the others",
      .needs = "an analysis of overlap",
      .command = "kvscope analyze overlap trace.h5 --out overlap.h5",
      .kinds = {"overlap"},
      .options = {"metric", "budget"},
      .make = make_overlap,
  };
}

}  // namespace kvscope
