// Retrieval accuracy over prompt length and depth of the fact: the needle grids of QuoKA's figures
// 4 and 7.
//
// Columns of the table: selector, budget, length (tokens), depth (0 to 1), accuracy (0 to 1); rows
// that agree in all of these are averaged.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "analysis/figures/maps.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/plot/scale.hpp"
#include "core/base/error.hpp"

namespace kvscope {

namespace {

plot::Figure make(const FigureInput& input) {
  const Table table = rows_of(*input.results[0]);
  const TextColumn& selectors = table.text("selector");
  const auto length = table.numbers("length");
  const auto depth = table.numbers("depth");
  const auto accuracy = table.numbers("accuracy");
  const auto budget = table.has("budget") ? table.numbers("budget") : std::span<const double>();
  const auto wanted = figures::parse_words(input.options.selector);

  std::set<double> lengths;
  std::set<double> depths;
  std::vector<std::string> names;  // in the order of the table
  std::map<std::string, std::map<std::pair<double, double>, std::pair<double, int>>> grids;
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    const std::string& selector = selectors.at(r);
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), selector) == wanted.end())
      continue;
    std::string name = figures::method_label(selector);
    if (!budget.empty() && !std::isnan(budget[r])) {
      const std::string text = plot::tick_text(budget[r], plot::TickFormat::tokens);
      if (!input.options.budget.empty() && fmt::format("{}", budget[r]) != input.options.budget)
        continue;
      name += ", " + text;
    }
    if (std::isnan(accuracy[r])) continue;
    if (!grids.contains(name)) names.push_back(name);
    auto& [sum, n] = grids[name][{depth[r], length[r]}];
    sum += accuracy[r];
    ++n;
    lengths.insert(length[r]);
    depths.insert(depth[r]);
  }
  if (names.empty()) {
    throw ConfigError(
        fmt::format("{}: the selection is empty: no row with an accuracy is left", table.name()));
  }
  const std::vector<double> length_list(lengths.begin(), lengths.end());
  const std::vector<double> depth_list(depths.begin(), depths.end());
  plot::Figure figure;
  figure.columns = static_cast<int>(std::min<std::size_t>(names.size(), 3));
  figure.span = names.size() > 1 ? plot::Span::full : plot::Span::column;
  figure.share_x = figure.share_y = true;
  figure.legend = plot::LegendPlace::above;
  for (std::size_t i = 0; i < names.size(); ++i) {
    plot::HeatMap map;
    map.n_rows = static_cast<Index>(depth_list.size());
    map.n_cols = static_cast<Index>(length_list.size());
    map.x = {0.0, static_cast<double>(map.n_cols)};
    map.y = {0.0, static_cast<double>(map.n_rows)};
    double sum_all = 0.0;
    int n_all = 0;
    for (double d : depth_list) {
      for (double l : length_list) {
        const auto it = grids[names[i]].find({d, l});
        const bool known = it != grids[names[i]].end();
        const double value = known ? it->second.first / it->second.second : std::nan("");
        map.values.push_back(static_cast<float>(value));
        if (known) {
          sum_all += value;
          ++n_all;
        }
      }
    }
    plot::Panel panel;
    panel.title = fmt::format("{} (mean {:.0f}%)", names[i], 100.0 * sum_all / std::max(1, n_all));
    panel.x.label = "Prompt length (tokens)";
    panel.y.label = "Depth of the fact";
    panel.y.reversed = true;
    for (std::size_t j = 0; j < length_list.size(); ++j) {
      panel.x.ticks.push_back({static_cast<double>(j) + 0.5,
                               plot::tick_text(length_list[j], plot::TickFormat::tokens)});
    }
    for (std::size_t j = 0; j < depth_list.size(); ++j) {
      panel.y.ticks.push_back(
          {static_cast<double>(j) + 0.5, fmt::format("{:.0f}%", 100.0 * depth_list[j])});
    }
    panel.aspect = 0.7;
    panel.colour = plot::ColourAxis{};
    panel.colour->axis.label = "Accuracy";
    panel.colour->axis.range = plot::Range{0.0, 1.0};
    panel.colour->axis.format = plot::TickFormat::percent;
    panel.colour->masked_label = "not measured";
    panel.colour->show_bar =
        (i + 1) % static_cast<std::size_t>(figure.columns) == 0 || i + 1 == names.size();
    panel.marks.emplace_back(std::move(map));
    figure.panels.push_back(std::move(panel));
  }
  figure.caption.emplace_back(
      "Exact-match accuracy by prompt length and depth of the hidden fact.");
  return figure;
}

}  // namespace

FigureKind figure_needle() {
  FigureKind kind;
  kind.name = "needle";
  kind.shows =
      "retrieval accuracy over prompt length and depth of the fact (QuoKA, figures 4 and 7)";
  kind.needs = "a table with selector, length, depth and accuracy (budget optional)";
  kind.command = "kvscope simulate needle --selector quoka --budget 256 --out needle.h5";
  kind.kinds = {"simulate-needle|simulate-passkey|table"};
  kind.options = {"selector", "budget"};
  kind.make = make;
  return kind;
}

}  // namespace kvscope
