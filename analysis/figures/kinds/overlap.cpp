// Which keys methods share: a method per row and column, and in the last column all the others.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/figures/maps.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {

plot::Figure make_overlap(const FigureInput& input) {
  const auto& summary = input.results[0]->summary();
  const std::string metric = input.options.metric.empty() ? "jaccard" : input.options.metric;
  const std::string_view label =
      std::array{"Jaccard index of the keys", "Attention on keys that both keep",
                 "Attention that the row keeps and the column drops"}[figures::metric_slot(
          metric, {"jaccard", "shared_mass", "first_mass"})];

  std::vector<std::string> budgets, methods;
  const auto note = [](std::vector<std::string>& list, const std::string& word) {
    if (std::ranges::find(list, word) == list.end()) list.push_back(word);
  };
  for (const auto& one : summary.at("couples")) {
    if (one.at("budget").is_string()) note(budgets, one.at("budget"));
    note(methods, one.at("first"));
    note(methods, one.at("second"));
  }
  std::erase(methods, "others");
  const std::string budget = !input.options.budget.empty() ? input.options.budget
                             : budgets.empty()             ? ""
                                                           : budgets[budgets.size() / 2];
  const auto slot = [&](const std::string& method) {
    return static_cast<std::size_t>(std::ranges::find(methods, method) - methods.begin());
  };

  plot::HeatMap map;
  const std::size_t n = methods.size();
  const std::size_t n_columns = n + (n > 2 ? 1 : 0);
  std::vector<float> values(n * n_columns, kNanF);
  bool is_empty = true;
  for (const auto& one : summary.at("couples")) {
    if (one.at("budget").is_string() && one.at("budget") != budget) continue;
    const auto number = [&](const std::string& key) {
      return one.at(key).is_number() ? one.at(key).get<float>() : kNanF;
    };
    const std::size_t a = slot(one.at("first")), b = slot(one.at("second"));
    values[a * n_columns + b] = number(metric);
    if (b < n) values[b * n_columns + a] = number(metric == "first_mass" ? "second_mass" : metric);
    is_empty = false;
  }
  if (is_empty)
    figures::fail_empty(input.results[0]->name(), fmt::format("no budget of \"{}\"", budget));

  std::vector<double> rows, columns;
  std::vector<plot::Tick> row_names, column_names;  // columns by number: names would not fit
  for (std::size_t i = 0; i < n_columns; ++i) {
    columns.push_back(static_cast<double>(i));
    const double middle = static_cast<double>(i) + 0.5;
    const std::string number = fmt::format("{}", i + 1);
    column_names.push_back({middle, i < n ? number : "others"});
    if (i == n) break;
    rows.push_back(static_cast<double>(i));
    row_names.push_back({middle, figures::method_label(methods[i]) + " " + number});
  }
  plot::ColourAxis colour;
  colour.axis.label = label;
  colour.axis.format = plot::TickFormat::percent;
  plot::Panel panel = figures::head_panel(rows, columns, std::move(values), colour);
  std::get<plot::HeatMap>(panel.marks[0]).print_values = true;
  panel.x.label = panel.y.label = "";
  panel.x.ticks = std::move(column_names);
  panel.y.has_names = panel.y.reversed = true;
  panel.y.ticks = std::move(row_names);
  plot::Figure figure;
  figure.panels.push_back(std::move(panel));
  figure.caption.push_back(
      fmt::format("Keys before each call{}, means over rows, heads and layers that choose.",
                  budget.empty() ? "" : fmt::format(" at {}", budget)));
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
