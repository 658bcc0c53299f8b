// What every query head keeps under each method at one budget: layer x head.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "analysis/base/statistics.hpp"
#include "analysis/figures/maps.hpp"
#include "analysis/figures/method_rows.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "analysis/figures/sweep_curves.hpp"
#include "core/base/error.hpp"
#include "core/selectors/method_spec.hpp"

namespace kvscope {

namespace {

using figures::SweepMetric;

/// The budget asked for, else the middle one of those that most methods have; none if the methods
/// take none.
std::optional<double> choose_budget(const std::set<double>& budgets, const std::string& option,
                                    const std::string& where) {
  if (budgets.empty() && option.empty()) return std::nullopt;
  if (budgets.empty()) throw ConfigError("{}: no method here has a budget", where);
  if (option.empty())
    return *std::next(budgets.begin(), static_cast<std::ptrdiff_t>((budgets.size() - 1) / 2));
  for (double budget : budgets) {
    if (fmt::format("{}", budget) == option) return budget;
  }
  throw ConfigError("budget: there is no {} in this table; it has {}", option,
                    fmt::join(budgets, ", "));
}

/// By method, then layer and head.
using HeadMeans = std::map<std::string, std::map<std::pair<double, double>, Mean>>;

/// True if a head shows more under some method than under the oracle.
bool is_any_beyond_oracle(const HeadMeans& cells) {
  const auto oracle = cells.find("oracle-topk");
  if (oracle == cells.end()) return false;
  for (const auto& [selector, of_method] : cells) {
    if (selector == "full" || is_oracle(selector)) continue;
    for (const auto& [place, cell] : of_method) {
      const auto bound = oracle->second.find(place);
      if (bound != oracle->second.end() && cell.value() > bound->second.value() + 1e-3) return true;
    }
  }
  return false;
}

void say_without_numbers(const std::vector<std::string>& selectors, const HeadMeans& cells,
                         std::vector<std::string>& caption) {
  std::vector<std::string> without;
  for (const std::string& selector : selectors) {
    if (!cells.contains(selector)) without.push_back(figures::method_label(selector));
  }
  if (without.empty()) return;
  caption.push_back(fmt::format("Without numbers at this budget: {}.", fmt::join(without, ", ")));
}

plot::Figure make_coverage_heads(const FigureInput& input) {
  const Table table = rows_of(*input.results[0]);
  FigureOptions options = input.options;
  if (options.metric.empty()) options.metric = "mass";
  const figures::SweepSelection selection =
      figures::select_sweep_rows(table, options, figures::DenseLayers::leave_out_alone);
  const SweepMetric& metric = figures::sweep_metric(options.metric);
  const auto values = table.numbers(metric.column);
  const auto layer = table.numbers("layer");
  const auto head = table.numbers("q_head");
  const auto budget = table.numbers("budget");
  const TextColumn& selectors = table.text("selector");

  std::set<double> budgets, layers, heads;
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    if (!std::isnan(head[r])) layers.insert(layer[r]);
  }
  for (std::size_t r : selection.rows) {
    if (!std::isnan(budget[r])) budgets.insert(budget[r]);
    heads.insert(head[r]);
  }
  const std::optional<double> chosen = choose_budget(budgets, options.budget, table.name());
  const std::vector<double> layer_list(layers.begin(), layers.end());
  const std::vector<double> head_list(heads.begin(), heads.end());

  // mean over traces per method, layer and head
  HeadMeans cells;
  plot::Range range{1e300, -1e300};
  const auto is_shown = [&](std::size_t r) {
    return !std::isnan(values[r]) && (chosen ? budget[r] == *chosen : std::isnan(budget[r]));
  };
  std::vector<std::size_t> rows;
  std::ranges::copy_if(selection.rows, std::back_inserter(rows), is_shown);
  const std::string cost = rows.empty() || !figures::has_several_costs(table)
                               ? std::string()
                               : table.text("match").at(rows.front());
  if (!cost.empty())
    std::erase_if(rows, [&](std::size_t r) { return table.text("match").at(r) != cost; });
  const figures::CommonRows common = figures::common_rows(
      rows, [&](std::size_t r) { return selectors.at(r); },
      [&](std::size_t r) { return figures::words_of_place(table, r, /*with_head=*/false); });
  std::map<std::tuple<std::int32_t, double, double>, std::vector<std::size_t>> groups;
  for (std::size_t r : common.rows) {
    groups[{selectors.codes[r], layer[r], head[r]}].push_back(r);
    cells[selectors.at(r)][{layer[r], head[r]}].add(values[r]);
    range.low = std::min(range.low, values[r]);
    range.high = std::max(range.high, values[r]);
  }
  if (metric.is_share) range.high = 1.0;
  if (!(range.low < range.high)) range.low = range.high - 0.1;

  // heads that show more than the oracle's do so with the keys that stand under their names
  const bool is_beyond = metric.is_share && table.has("kept") && is_any_beyond_oracle(cells);
  std::map<std::string, Mean> kept;
  for (std::size_t r : common.rows) {
    if (is_beyond) kept[selectors.at(r)].add(table.numbers("kept")[r]);
  }

  plot::Figure figure =
      figures::panels_in_rows(cells.size(), figures::balanced_columns(cells.size()));
  figure.share_x = figure.share_y = true;
  std::size_t n_shown = 0;
  for (const std::string& selector : selection.selectors) {
    if (!cells.contains(selector)) continue;
    std::vector<double> map;
    for (double l : layer_list) {
      for (double h : head_list) map.push_back(cells[selector][{l, h}].value());
    }
    ++n_shown;
    plot::Panel panel =
        figures::head_panel(layer_list, head_list, map,
                            {.axis = {.label = std::string(metric.label), .range = range},
                             .show_bar = n_shown % static_cast<std::size_t>(figure.columns) == 0,
                             .masked_label = "dense or not measured"});
    panel.title = figures::method_label(selector);
    if (is_beyond && kept[selector].n() > 0)
      panel.title += fmt::format("\n{:.0f} keys per query", kept[selector].value());
    figure.panels.push_back(std::move(panel));
  }
  figure.caption = selection.sentences;
  for (const auto& [head_of_method, rows_of_head] : groups)
    figures::say_means(table, {rows_of_head}, figure.caption);
  if (const std::string lacking = common.sentence("recording"); !lacking.empty())
    figure.caption.push_back(lacking);
  say_without_numbers(selection.selectors, cells, figure.caption);
  if (!cost.empty()) figure.caption.push_back(fmt::format("Of several costs {} is shown.", cost));
  figure.caption.push_back(chosen ? fmt::format("Budget: {} {}.", *chosen, selection.budget_kind)
                                  : std::string("The methods take no budget."));
  if (is_beyond) {
    figure.caption.emplace_back(
        "Keys per query: as measured. Some heads keep more attention than the oracle's of the same "
        "nominal budget, because they keep more keys or divide theirs unevenly over rows.");
  }
  return figure;
}

}  // namespace

FigureKind figure_coverage_heads() {
  return {
      .name = "coverage-heads",
      .shows = "what every layer and query head keeps under each method at one budget",
      .needs = "the table of a sweep (.h5, .csv or .json)",
      .command = "kvscope sweep trace.h5 --selector quoka,quest --budget 64,128,256 --out sweep.h5",
      .kinds = {"sweep|table"},
      .options = {"metric", "selector", "budget", "layers", "heads", "phase"},
      .make = make_coverage_heads,
  };
}

}  // namespace kvscope
