// Retrieval accuracy over prompt length and depth of the fact: the needle grids of QuoKA's figures
// 4 and 7.
//
// Columns of the table: selector, budget, length (tokens), depth (0 to 1), accuracy (0 to 1); rows
// that agree in all of these are averaged. A simulation's grids do as well.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "analysis/figures/maps.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/plot/scale.hpp"
#include "core/base/error.hpp"

namespace kvscope {

namespace {

/// One measured prompt, or the mean of several.
struct Answer {
  std::string selector;
  double budget = std::numeric_limits<double>::quiet_NaN();
  double length = 0.0;
  double depth = 0.0;
  double accuracy = 0.0;
};

std::vector<Answer> read_answers(const ResultView& result, const std::string& kind) {
  const Table table = rows_of(result);
  const TextColumn& selectors = table.text("selector");
  const auto budget_of = [&](std::size_t r) {
    return table.has("budget") ? table.numbers("budget")[r] : std::nan("");
  };
  std::vector<Answer> answers;
  const std::string prefix = "grid/" + kind;
  for (const ResultArray& array : result.arrays()) {
    if (array.shape.rank != 3 || !array.name.starts_with(prefix)) continue;
    // grid/KIND [pair, length, depth]; the table's first rows are the pairs in their order
    const figures::ArrayData grid(result, array.name);
    const auto lengths = result.read("grid/length");
    const auto depths = result.read("grid/depth");
    for (Index p = 0; p < grid.spec.shape[0]; ++p) {
      const std::size_t row =
          static_cast<std::size_t>(p) * (table.has("depth") ? depths.size() : std::size_t{1});
      if (row >= table.n_rows() || lengths.size() != static_cast<std::size_t>(grid.spec.shape[1]) ||
          depths.size() != static_cast<std::size_t>(grid.spec.shape[2])) {
        throw FormatError(
            fmt::format("{}: {} does not fit its axes or the table", result.name(), array.name));
      }
      for (Index l = 0; l < grid.spec.shape[1]; ++l) {
        for (Index d = 0; d < grid.spec.shape[2]; ++d) {
          answers.push_back({selectors.at(row), budget_of(row),
                             lengths[static_cast<std::size_t>(l)],
                             depths[static_cast<std::size_t>(d)], grid(p, l, d)});
        }
      }
    }
    return answers;
  }
  const auto length = table.numbers("length");
  const auto depth = table.numbers("depth");
  const auto accuracy = table.numbers("accuracy");
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    answers.push_back({selectors.at(r), budget_of(r), length[r], depth[r], accuracy[r]});
  }
  return answers;
}

plot::Figure make_needle(const FigureInput& input) {
  const auto wanted = figures::parse_words(input.options.selector);
  std::set<double> lengths;
  std::set<double> depths;
  std::vector<std::string> names;  // in the order of the table
  std::map<std::string, std::map<std::pair<double, double>, std::pair<double, int>>> grids;
  for (const Answer& answer : read_answers(*input.results[0], input.options.metric)) {
    const bool is_wanted =
        wanted.empty() || std::find(wanted.begin(), wanted.end(), answer.selector) != wanted.end();
    if (!is_wanted || std::isnan(answer.accuracy)) continue;
    std::string name = figures::method_label(answer.selector);
    if (!std::isnan(answer.budget)) {
      const bool other =
          !input.options.budget.empty() && fmt::format("{}", answer.budget) != input.options.budget;
      if (other) continue;
      name += ", " + plot::tick_text(answer.budget, plot::TickFormat::tokens);
    }
    if (!grids.contains(name)) names.push_back(name);
    auto& [sum, n] = grids[name][{answer.depth, answer.length}];
    sum += answer.accuracy;
    ++n;
    lengths.insert(answer.length);
    depths.insert(answer.depth);
  }
  if (names.empty()) {
    throw ConfigError(fmt::format("{}: the selection is empty: no row with an accuracy is left",
                                  input.results[0]->name()));
  }
  const std::vector<double> length_list(lengths.begin(), lengths.end());
  const std::vector<double> depth_list(depths.begin(), depths.end());
  plot::Figure figure;
  figure.columns = figures::balanced_columns(names.size());
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
    panel.colour->show_bar = (i + 1) % static_cast<std::size_t>(figure.columns) == 0;
    panel.marks.emplace_back(std::move(map));
    figure.panels.push_back(std::move(panel));
  }
  figure.caption.emplace_back(
      "Exact-match accuracy by prompt length and depth of the hidden fact.");
  return figure;
}

}  // namespace

FigureKind figure_needle() {
  return {
      .name = "needle",
      .shows =
          "retrieval accuracy over prompt length and depth of the fact (QuoKA, figures 4 and 7)",
      .needs =
          "a retrieval simulation, or a table with selector, length, depth and accuracy (budget "
          "optional); --metric names the kind of prompt",
      .command = "kvscope simulate needle --selector quoka --budget 256 --out needle.h5",
      .kinds = {"simulate-needle|simulate-passkey|simulate-ruler|table"},
      .options = {"metric", "selector", "budget"},
      .make = make_needle,
  };
}

}  // namespace kvscope
