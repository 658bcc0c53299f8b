// Predicted time against measured loss: a dot per method and budget with its interval, and the
// front through those that no faster one beats. Of a sweep that has times (--hardware), or of a
// result with losses and a report of kvscope cost, joined by method and budget.
//
// A point is BEATEN by one that takes no more time and whose whole interval of the loss lies below
// its own. It is ON THE FRONT if the intervals of all that take no more time lie at or above its
// own; what is neither is undecided: the measurement does not say. Oracles and controls beat
// nobody.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "analysis/base/statistics.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "analysis/figures/sweep_curves.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"
#include "core/base/number_text.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/selectors/registry.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kMostPanels = 6;

/// A metric as results spell it; its loss is a share.
struct LossMetric {
  std::string_view column, low, high;
  std::string_view label;
};
constexpr std::array<LossMetric, 3> kLossMetrics = {
    {{"relative_increase", "relative_increase_low", "relative_increase_high",
      "Increase of perplexity"},
     {"mass_mean", "mass_low", "mass_high", "Attention mass lost"},
     {"accuracy", "accuracy_low", "accuracy_high", "Accuracy lost"}}};

double number_in(const Table& table, const std::string& column, std::size_t row) {
  return table.has(column) ? table.numbers(column)[row] : kNan;
}

std::string word_in(const Table& table, const std::string& column, std::size_t row) {
  return table.has_text(column) ? table.text(column).at(row) : std::string();
}

/// A method at a budget: "quest tokens=256".
std::string point_name(const Table& table, std::size_t row) {
  const double budget = number_in(table, "budget", row);
  const std::string& selector = table.text("selector").at(row);
  const bool has_costs =
      std::isnan(budget) && figures::has_several_costs(table) && selector != "full";
  if (has_costs) return selector + " " + word_in(table, "match", row);
  return std::isnan(budget)
             ? selector
             : fmt::format("{} {}={}", selector, word_in(table, "budget_kind", row), budget);
}

struct LossPoint {
  std::string name;
  std::string selector;
  bool is_reference = false;
  double us = kNan;
  double loss = kNan, low = kNan, high = kNan;
};

/// An oracle or a control.
bool is_reference(const std::string& selector) {
  const auto& entries = selector_registry().entries();
  return is_oracle(selector) || std::ranges::any_of(entries, [&](const SelectorEntry& entry) {
           return entry.name == selector && entry.family == MethodFamily::controls;
         });
}

/// Means over the cells of a method at a budget: layers, kinds and lengths of prompts, texts.
struct MeasuredLoss {
  std::string selector;
  Mean value, us, dense_us;
  figures::MeanEnds ends;
};
using LossesByName = std::map<std::string, MeasuredLoss>;

const LossMetric& loss_metric(const Table& table, const std::string& wanted) {
  std::vector<std::string> there;
  for (const LossMetric& metric : kLossMetrics) {
    const std::string column(metric.column);
    if (!table.has(column)) continue;
    if (wanted.empty() || column.starts_with(wanted)) return metric;
    there.push_back(column);
  }
  throw ConfigError(
      "{}: expected rows with relative_increase or accuracy (kvscope simulate) or mass_mean "
      "(kvscope sweep), found {}",
      table.name(), there.empty() ? "none of them" : fmt::format("{}", fmt::join(there, ", ")));
}

LossesByName losses_of(const Table& table, const std::vector<std::size_t>& rows,
                       const LossMetric& metric) {
  LossesByName losses;
  for (const std::size_t r : rows) {
    const double value = number_in(table, std::string(metric.column), r);
    if (std::isnan(value)) continue;
    MeasuredLoss& found = losses[point_name(table, r)];
    found.selector = table.text("selector").at(r);
    found.value.add(value);
    found.ends.add(number_in(table, std::string(metric.low), r),
                   number_in(table, std::string(metric.high), r));
    found.us.add(number_in(table, "predicted_us", r));
    found.dense_us.add(number_in(table, "predicted_dense_us", r));
  }
  return losses;
}

/// The loss of one method. Of accuracies the interval is Newcombe's of two that are not paired.
LossPoint point_of(const std::string& name, const MeasuredLoss& of, const MeasuredLoss* full,
                   const LossMetric& metric, double us) {
  LossPoint point{name, of.selector, is_reference(of.selector), us};
  const double value = of.value.value(), low = of.ends.low(), high = of.ends.high();
  if (metric.column == "relative_increase") {
    point.loss = value, point.low = low, point.high = high;
  } else if (metric.column == "mass_mean") {
    point.loss = 1.0 - value, point.low = 1.0 - high, point.high = 1.0 - low;
  } else {
    const double dense = full->value.value();
    point.loss = dense - value;
    point.low = point.loss - std::hypot(dense - full->ends.low(), high - value);
    point.high = point.loss + std::hypot(full->ends.high() - dense, value - low);
  }
  return point;
}

enum class Place { yes, undecided, beaten };

Place place_of(const LossPoint& point, const std::vector<LossPoint>& all) {
  Place found = Place::yes;
  for (const LossPoint& other : all) {
    if (&other == &point || other.is_reference || other.us > point.us) continue;
    if (other.high < point.low) return Place::beaten;
    if (!(other.low >= point.high)) found = Place::undecided;  // also where one is not known
  }
  return found;
}

/// Times of one card at one context: by method and budget; and of full attention.
struct Times {
  std::string title;
  std::map<std::string, double> us;
  double dense_us = kNan;
};

/// One for each card, context and batch of a report of kvscope cost.
std::vector<Times> times_of(const Table& costs) {
  std::vector<Times> all;
  for (std::size_t r = 0; r < costs.n_rows(); ++r) {
    const double batch = number_in(costs, "batch", r);
    const std::string title = fmt::format(
        "{}, {} of {} tokens{}", word_in(costs, "hardware", r), word_in(costs, "phase", r),
        number_text(std::round(number_in(costs, "context", r)), 8),
        batch > 1 ? fmt::format(", batch {}", batch) : "");
    auto found = std::ranges::find(all, title, &Times::title);
    if (found == all.end()) found = all.insert(all.end(), {title, {}, kNan});
    found->us[point_name(costs, r)] = number_in(costs, "predicted_us", r);
    found->dense_us = number_in(costs, "predicted_dense_us", r);
  }
  if (all.size() > kMostPanels)
    throw ConfigError("{}: has times of {} cards, contexts and batches; expected at most {}",
                      costs.name(), all.size(), kMostPanels);
  return all;
}

/// The times of a sweep that was made with --hardware.
Times own_times(const Table& table, const LossesByName& losses) {
  if (!table.has("predicted_us"))
    throw ConfigError(
        "{}: has no predicted times: expected a sweep made with --hardware, or a report of "
        "kvscope cost beside it",
        table.name());
  Times times;
  for (const auto& [name, loss] : losses) {
    times.us[name] = loss.us.value();
    times.dense_us = loss.dense_us.value();
  }
  return times;
}

std::string fastest_sentence(const std::vector<LossPoint>& points, const std::string& title) {
  constexpr double kLimit = 0.01;
  for (const LossPoint& point : points) {
    if (point.is_reference || !(point.high <= kLimit)) continue;
    return fmt::format("{}: the fastest that surely loses at most 1 % is {}.", title, point.name);
  }
  return fmt::format("{}: nothing surely loses at most 1 %.", title);
}

plot::Panel panel_of(const std::vector<LossPoint>& points, const LossMetric& metric,
                     const Times& times, const figures::MethodTones& tones) {
  plot::Panel panel{
      .title = times.title,
      .x = {.label = "Predicted time of attention (µs)", .scale = plot::ScaleKind::log10},
      .y = {.label = std::string(metric.label), .format = plot::TickFormat::percent},
      .legend = plot::LegendPlace::above};
  panel.marks.emplace_back(plot::Rule{plot::Rule::Kind::vertical,
                                      times.dense_us,
                                      figures::method_label("full"),
                                      {plot::Role::reference, 1}});
  plot::Line front{"front", {plot::Role::neutral, 0}, {}, {}, {}, {}, false, false};
  double least = std::numeric_limits<double>::infinity();
  std::map<std::string, std::pair<plot::Scatter, plot::Scatter>> dots;  // on the front, beaten
  std::map<std::string, plot::Line> intervals;
  for (const LossPoint& point : points) {
    const bool is_beaten = !point.is_reference && place_of(point, points) == Place::beaten;
    if (!point.is_reference && !is_beaten && point.loss < least) {
      least = point.loss;
      front.add(point.us, least);
    }
    if (point.selector == "full") continue;
    const plot::Tone tone = tones.of(point.selector);
    auto [at, is_new] = dots.try_emplace(point.selector);
    plot::Line& line = intervals[point.selector];
    if (is_new) {
      at->second = {
          plot::Scatter{figures::method_label(point.selector), tone, {}, {}, {}, 1.3, 1.0},
          plot::Scatter{"", tone, {}, {}, {}, 0.7, 1.0}};
      line = {"", tone, {}, {}, {}, {}, false, false};
    }
    (is_beaten ? at->second.second : at->second.first).add(point.us, point.loss);
    line.add(point.us, point.loss, {point.low, point.high});
    line.add(point.us, kNan, {kNan, kNan});  // a gap behind each: bars, no band
  }
  if (front.x.size() > 1) panel.marks.emplace_back(std::move(front));
  for (auto& [selector, pair] : dots) {
    auto& [kept, beaten] = pair;
    if (kept.x.empty()) std::swap(kept.label, beaten.label);
    panel.marks.emplace_back(std::move(intervals[selector]));
    for (plot::Scatter* marks : {&beaten, &kept}) {
      if (!marks->x.empty()) panel.marks.emplace_back(std::move(*marks));
    }
  }
  return panel;
}

plot::Figure make_pareto(const FigureInput& input) {
  const Table table = rows_of(*input.results[0]);
  const LossMetric& metric = loss_metric(table, input.options.metric);
  FigureOptions options = input.options;
  options.metric = metric.column;
  const auto& there = table.text("selector").categories;
  const bool has_full = std::ranges::find(there, "full") != there.end();
  if (!options.selector.empty() && has_full) options.selector += ",full";  // losses are taken of it
  const figures::SweepSelection rows =
      figures::select_sweep_rows(table, options, figures::DenseLayers::leave_out_for_all,
                                 figures::BudgetKinds::all, figures::RowsOf::layers);
  const LossesByName losses = losses_of(table, rows.rows, metric);
  const auto full = losses.find("full");
  if (metric.column == "accuracy" && full == losses.end())
    throw ConfigError("{}: has no full attention, of which losses are taken", table.name());
  const std::vector<Times> all_times = input.results.size() > 1
                                           ? times_of(rows_of(*input.results[1]))
                                           : std::vector<Times>{own_times(table, losses)};
  const figures::Wanted wanted(input.options.selector, there);
  std::vector<std::string> selectors;
  for (const auto& [name, loss] : losses) {
    if (loss.selector != "full" && wanted.has(loss.selector) &&
        std::ranges::find(selectors, loss.selector) == selectors.end())
      selectors.push_back(loss.selector);
  }
  if (selectors.empty()) figures::fail_empty(table.name(), "no row of these methods");
  const figures::MethodTones tones(selectors);

  plot::Figure figure;
  figures::LeftOut without_time;
  for (const Times& times : all_times) {
    std::vector<LossPoint> points = {{"full", "full", false, times.dense_us, 0.0, 0.0, 0.0}};
    for (const auto& [name, loss] : losses) {
      if (loss.selector == "full" || std::ranges::find(selectors, loss.selector) == selectors.end())
        continue;
      const auto us = times.us.find(name);
      if (us == times.us.end() || std::isnan(us->second)) {
        without_time.add(name);
        continue;
      }
      points.push_back(
          point_of(name, loss, full == losses.end() ? nullptr : &full->second, metric, us->second));
    }
    if (points.size() == 1)
      throw ConfigError(
          "{}: no method and budget has both a loss and a time: expected kvscope cost of the same "
          "methods and budgets",
          table.name());
    std::ranges::stable_sort(points, {},
                             [](const LossPoint& p) { return std::pair(p.us, p.loss); });
    figure.panels.push_back(panel_of(points, metric, times, tones));
    figure.caption.push_back(fastest_sentence(points, times.title.empty() ? "Here" : times.title));
  }
  figure.caption.insert(
      figure.caption.begin(),
      "Predicted time of attention in one layer and measured loss with its 95% interval (of means, "
      "the mean of its ends); several dots of a method are its budgets. Grey: the front, as far as "
      "the means go. Small: beaten by a method that takes no more time, whose interval lies below. "
      "Left of the dotted line: faster than full attention. Oracles and controls beat nobody.");
  figure.caption.insert(figure.caption.end(), rows.sentences.begin(), rows.sentences.end());
  const auto& config = input.results[0]->info().config;
  if (const std::string card =
          config.is_object() ? text_at(config.value("hardware", Json()), "title") : "";
      !card.empty())
    figure.caption.push_back(fmt::format("Times are of {}.", card));
  without_time.say("Without a time", figure.caption);
  return figure;
}

}  // namespace

FigureKind figure_pareto() {
  return {
      .name = "pareto",
      .shows = "predicted time against measured loss: which methods no faster one beats",
      .needs =
          "a sweep made with --hardware; or a sweep or simulation, and a report of kvscope cost "
          "with the same methods and budgets",
      .command =
          "kvscope sweep trace.h5 --selector quest,quoka --budget 64,256 --hardware h100-sxm "
          "--out sweep.csv",
      .kinds = {"sweep|simulate-perplexity|simulate-retrieval|table", "cost?"},
      .options = {"metric", "selector"},
      .make = make_pareto,
  };
}

}  // namespace kvscope
