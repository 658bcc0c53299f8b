#include "gui/model/results/result_figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/figures/selection.hpp"
#include "core/base/error.hpp"
#include "core/base/number_text.hpp"
#include "core/trace/result.hpp"
#include "gui/model/results/result_tables.hpp"

namespace kvscope::gui {

namespace {

/// Which series each row belongs to, and what they are called.
struct Series {
  std::vector<std::string> names;
  std::vector<std::int32_t> of_row;  // [table rows]; -1: not among the rows that are drawn
};

Series series_of(const Table& table, std::span<const std::uint32_t> rows,
                 const std::string& column) {
  Series series;
  series.of_row.assign(table.n_rows(), -1);
  if (column.empty()) {
    series.names = {""};
    for (const std::uint32_t row : rows) series.of_row[row] = 0;
    return series;
  }
  const TableColumn& values = table.at(column);
  std::map<std::string, std::int32_t> slot;       // words, in the order of the file
  std::map<double, std::int32_t> slot_of_number;  // numbers, ascending
  const auto check = [&](std::size_t n) {
    if (n <= kMostSeries) return;
    throw ConfigError(
        "series: {} has more than {} different values among these lines; filter the table, or "
        "choose another column",
        column, kMostSeries);
  };
  if (values.is_text) {
    for (const std::uint32_t row : rows) {
      const std::string& word = values.words.at(row);
      const auto [it, is_new] = slot.try_emplace(word, static_cast<std::int32_t>(slot.size()));
      if (is_new) series.names.push_back(word.empty() ? "(empty)" : word);
      check(slot.size());
      series.of_row[row] = it->second;
    }
    return series;
  }
  for (const std::uint32_t row : rows) {
    if (std::isnan(values.numbers[row])) continue;
    slot_of_number.try_emplace(values.numbers[row], 0);
    check(slot_of_number.size());
  }
  for (auto& [number, place] : slot_of_number) {
    place = static_cast<std::int32_t>(series.names.size());
    series.names.push_back(fmt::format("{} {}", column, number));
  }
  for (const std::uint32_t row : rows) {
    if (!std::isnan(values.numbers[row])) {
      series.of_row[row] = slot_of_number.at(values.numbers[row]);
    }
  }
  return series;
}

std::vector<plot::Tone> tones_of(const Series& series, const std::string& column) {
  std::vector<plot::Tone> tones;
  if (column == "selector") {
    const figures::MethodTones methods(series.names);
    for (const std::string& name : series.names) tones.push_back(methods.of(name));
    return tones;
  }
  for (std::size_t i = 0; i < series.names.size(); ++i) {
    tones.push_back({plot::Role::series, static_cast<int>(i)});
  }
  return tones;
}

/// Rows that have a place on the axes.
struct Placed {
  std::vector<std::uint32_t> rows;
  std::size_t n_without = 0;
};

Placed placed_rows(std::span<const std::uint32_t> rows, const Series& series,
                   std::span<const double> x, std::span<const double> y,
                   const FreePlotOptions& options) {
  Placed placed;
  for (const std::uint32_t row : rows) {
    const bool is_placed = series.of_row[row] >= 0 && std::isfinite(x[row]) &&
                           std::isfinite(y[row]) && (!options.log_x || x[row] > 0.0) &&
                           (!options.log_y || y[row] > 0.0);
    if (is_placed) {
      placed.rows.push_back(row);
    } else {
      ++placed.n_without;
    }
  }
  return placed;
}

std::vector<std::uint32_t> thinned(const std::vector<std::uint32_t>& rows) {
  if (rows.size() <= kMostPlotted) return rows;
  std::vector<std::uint32_t> some;
  for (std::size_t i = 0; i < kMostPlotted; ++i) {
    some.push_back(rows[i * (rows.size() - 1) / (kMostPlotted - 1)]);
  }
  return some;
}

void add_points(plot::Panel& panel, const std::vector<std::uint32_t>& rows, const Series& series,
                const std::vector<plot::Tone>& tones, std::span<const double> x,
                std::span<const double> y) {
  std::vector<plot::Scatter> clouds(series.names.size());
  for (const std::uint32_t row : rows)
    clouds[static_cast<std::size_t>(series.of_row[row])].add(x[row], y[row], row);
  const double opacity = rows.size() > 5000 ? 0.5 : 1.0;
  for (std::size_t s = 0; s < clouds.size(); ++s) {
    clouds[s].label = figures::method_label(series.names[s]);
    clouds[s].tone = tones[s];
    clouds[s].opacity = opacity;
    panel.marks.emplace_back(std::move(clouds[s]));
  }
}

/// Returns the smallest and largest number of lines behind a mean.
std::pair<std::size_t, std::size_t> add_means(plot::Panel& panel,
                                              const std::vector<std::uint32_t>& rows,
                                              const Series& series,
                                              const std::vector<plot::Tone>& tones,
                                              std::span<const double> x, std::span<const double> y,
                                              BandKind band) {
  std::vector<std::map<double, std::vector<double>>> values(series.names.size());
  for (const std::uint32_t row : rows) {
    values[static_cast<std::size_t>(series.of_row[row])][x[row]].push_back(y[row]);
  }
  std::size_t least = rows.size();
  std::size_t most = 0;
  for (std::size_t s = 0; s < values.size(); ++s) {
    plot::Line line{.label = figures::method_label(series.names[s]), .tone = tones[s]};
    for (auto& [at, group] : values[s]) {
      const figures::Summary summary = figures::summarize(group, band);
      if (band == BandKind::none) {
        line.add(at, summary.middle);
      } else {
        line.add(at, summary.middle, {summary.low, summary.high});
      }
      least = std::min(least, group.size());
      most = std::max(most, group.size());
    }
    panel.marks.emplace_back(std::move(line));
  }
  return {least, most};
}

void require_numbers(const Table& table, const std::string& column, std::string_view axis) {
  if (table.has(column)) return;
  throw ConfigError(column.empty()
                        ? fmt::format("{}: choose a column of numbers", axis)
                        : fmt::format("{}: {} is no column of numbers of this table; choose "
                                      "another one",
                                      axis, column));
}

std::string first_present(const Table& table, std::initializer_list<const char*> names,
                          bool is_text) {
  for (const char* name : names) {
    if (is_text ? table.has_text(name) : table.has(name)) return name;
  }
  return {};
}

}  // namespace

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

FreePlotOptions with_columns_of(const Table& table, FreePlotOptions options) {
  const bool is_untouched = options.x.empty() && options.y.empty();
  std::vector<std::string> numbers;
  for (const TableColumn& column : table.columns()) {
    if (!column.is_text) numbers.push_back(column.name);
  }
  if (!table.has(options.x)) {
    options.x = first_present(table, {"budget", "length", "context", "layer", "step", "pos"},
                              /*is_text=*/false);
    if (options.x.empty() && !numbers.empty()) options.x = numbers.front();
  }
  if (!table.has(options.y)) {
    options.y = first_present(table, {"mass_mean", "accuracy", "perplexity", "kl", "mass"},
                              /*is_text=*/false);
    if (options.y.empty() && !numbers.empty()) options.y = numbers.back();
  }
  if (!options.series.empty() && table.find(options.series) == nullptr) options.series.clear();
  if (is_untouched) {
    options.series = first_present(table, {"selector", "method"}, /*is_text=*/true);
  }
  return options;
}

plot::Figure free_plot(const Table& table, std::span<const std::uint32_t> rows,
                       const FreePlotOptions& options, std::string_view filter_words) {
  require_numbers(table, options.x, "x");
  require_numbers(table, options.y, "y");
  const auto x = table.numbers(options.x);
  const auto y = table.numbers(options.y);
  const Series series = series_of(table, rows, options.series);
  const std::vector<plot::Tone> tones = tones_of(series, options.series);
  const Placed placed = placed_rows(rows, series, x, y, options);
  if (placed.rows.empty()) {
    throw ConfigError(
        "none of the {} lines has a place at {} and {}{}: choose other columns, or fewer filters",
        rows.size(), options.x, options.y,
        options.log_x || options.log_y ? " on a logarithmic axis" : "");
  }

  plot::Figure figure;
  figure.name = "table";
  plot::Panel& panel = figure.panels.emplace_back();
  panel.x.label = options.x;
  panel.y.label = options.y;
  if (options.log_x) panel.x.scale = plot::ScaleKind::log10;
  if (options.log_y) panel.y.scale = plot::ScaleKind::log10;
  figure.legend = options.series.empty() ? plot::LegendPlace::none : plot::LegendPlace::above;
  auto& caption = figure.caption;
  caption.push_back(fmt::format("{} against {} of {}; {} of {} lines.", options.y, options.x,
                                short_name(table), placed.rows.size(), table.n_rows()));
  if (!filter_words.empty()) caption.push_back(fmt::format("Filtered by {}.", filter_words));
  if (options.style == PlotStyle::points) {
    const std::vector<std::uint32_t> shown = thinned(placed.rows);
    add_points(panel, shown, series, tones, x, y);
    if (shown.size() < placed.rows.size()) {
      caption.push_back(fmt::format("{} of them are drawn, at equal distances.", shown.size()));
    }
  } else {
    const auto [least, most] = add_means(panel, placed.rows, series, tones, x, y, options.band);
    caption.push_back(figures::band_sentence(options.band, least, most, "lines"));
  }
  if (placed.n_without > 0) {
    caption.push_back(
        fmt::format("{} lines have an empty cell or no place on the axes.", placed.n_without));
  }
  plot::check_figure(figure);
  return figure;
}

}  // namespace kvscope::gui
