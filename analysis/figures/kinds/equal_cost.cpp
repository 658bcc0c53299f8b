// Every method at one measured cost: a dot per method, by family and best first, with the recorded
// intervals. Of a sweep (mass, errors) or of a closed loop (perplexity, accuracy, acceptance).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/base/mapped.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "analysis/figures/sweep_cells.hpp"
#include "analysis/figures/sweep_curves.hpp"
#include "analysis/sweep/match_rows.hpp"
#include "core/base/error.hpp"
#include "core/base/nan.hpp"
#include "core/base/number_text.hpp"
#include "core/selectors/method_spec.hpp"

namespace kvscope {

namespace {

/// What a panel shows: a number column.
struct EqualCostMetric {
  std::string column;
  std::string label;
  bool is_bounded = false;  // by the oracle, where all keep as many keys
  bool is_better_low = false;
  plot::ScaleKind scale = plot::ScaleKind::linear;
};

/// A metric of one method: means over layers and traces, or over the cells of a closed loop.
struct EqualCostValue {
  Mean middle;
  figures::MeanEnds ends;
};

struct EqualCostMethod {
  std::string selector;
  std::vector<std::string> notes;  // none: the cost is met
  std::vector<double> reached;     // by its rows
  Mean best_mass;  // of as many keys in each row; none without a ceiling in the sweep
  std::vector<EqualCostValue> values;  // one per panel
};

constexpr std::string_view kOracle = "oracle-topk";
constexpr std::string_view kCeiling = "ceiling";
constexpr double kSeen = 0.002;

/// The heading of a method, in the order of listings; those that this build does not know come
/// last. `is_short`: one word, for a figure as wide as a column.
std::pair<int, std::string> heading_of(const std::string& selector, bool is_short = false) {
  const std::string_view name = method_name(selector);
  if (selector.find('+') != std::string::npos)
    return {100, is_short ? "stacks" : "stacks and wrapped methods"};
  for (const SelectorEntry& entry : selector_registry().entries()) {
    if (entry.name == name || entry.presets.contains(std::string(name)))
      return {static_cast<int>(entry.family),
              std::string(is_short ? enum_name(entry.family) : title_of(entry.family))};
  }
  return {101, "others"};
}

bool is_sweep(const Table& table) {
  return table.has("mass_mean");
}

bool has_several_traces(const Table& table) {
  return table.has_text("trace") && table.text("trace").categories.size() > 1;
}

EqualCostMetric sweep_metric(const std::string& name) {
  const figures::SweepMetric& metric = figures::sweep_metric(name);
  return {std::string(metric.column), std::string(metric.label), metric.is_share,
          metric.column.starts_with("output_error")};
}

/// What a closed loop measures: the quality of its task.
EqualCostMetric live_metric(const Table& table) {
  const EqualCostMetric known[] = {{"perplexity", "Perplexity", true, true, plot::ScaleKind::log10},
                                   {"accuracy", "Accuracy", true, false},
                                   {"acceptance_length", "Accepted tokens per pass", true, false}};
  for (const EqualCostMetric& metric : known) {
    if (table.has(metric.column)) return metric;
  }
  throw ConfigError(
      "{}: expected the table of a sweep or of a simulation (perplexity, retrieval, speculative)",
      table.name());
}

std::vector<EqualCostMetric> metrics_of(const Table& table, const FigureOptions& options) {
  std::vector<std::string> names = figures::parse_words(options.metric);
  std::vector<EqualCostMetric> metrics;
  if (!is_sweep(table)) {
    metrics.push_back(live_metric(table));
    for (const std::string& name : names) figures::metric_slot(name, {metrics.front().column});
    return metrics;
  }
  if (names.empty()) names = {"mass", "output_error_rel"};
  for (const std::string& name : names) metrics.push_back(sweep_metric(name));
  return metrics;
}

/// The cost that is shown: the option's, else the first of the table.
std::string target_shown(const Table& table, const MatchedRows& matched,
                         const std::string& wanted) {
  const std::vector<std::string>& known = matched.targets();
  if (known.empty()) {
    throw ConfigError(
        "{}: nothing met a cost here: expected a table made with kvscope sweep "
        "--match density=0.05, or a simulation with --match",
        table.name());
  }
  if (wanted.empty()) return known.front();
  if (std::ranges::find(known, wanted) == known.end()) {
    throw ConfigError("budget: there is no cost {} in {}; it has {}", wanted, table.name(),
                      fmt::join(known, ", "));
  }
  return wanted;
}

struct CollectedMethods {
  std::vector<EqualCostMethod> methods;
  figures::CommonRows common;  // of which the values are
};

CollectedMethods collect_methods(const Table& table, const MatchedRows& matched,
                                 const FigureOptions& options, const std::string& phase,
                                 const std::string& target,
                                 const std::vector<EqualCostMetric>& metrics) {
  // One head and layers with a sliding window stand in a sweep's table alone.
  const bool has_layers = is_sweep(table);
  if (!has_layers && !options.phase.empty())
    throw ConfigError(
        "--phase: rows of a simulation have no phase; only tables of kvscope sweep do");
  const auto reached = table.numbers("match_reached");
  const TextColumn& selectors = table.text("selector");
  const figures::Wanted wanted(options.selector, selectors.categories);
  const std::vector<bool> has_numbers =
      figures::rows_with_numbers(table, mapped<std::string>(metrics, &EqualCostMetric::column));
  std::map<std::string, EqualCostMethod> by_name;
  std::vector<std::size_t> measured;
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    const std::string& selector = selectors.at(r);
    if (table.text("match").at(r) != target && !matched.has_no_setting(r)) continue;
    if (has_layers &&
        (!std::isnan(table.numbers("q_head")[r]) || table.numbers("window")[r] != 0.0))
      continue;
    if (has_layers && table.text("phase").at(r) != phase) continue;
    if (!wanted.has(selector)) continue;
    EqualCostMethod& method = by_name[selector];
    method.selector = selector;
    method.values.resize(metrics.size());
    if (std::string why = matched.why_missed(r); !why.empty()) {
      if (has_several_traces(table)) why += " in " + table.text("trace").at(r);
      method.notes.push_back(std::move(why));
    }
    if (has_numbers[r]) measured.push_back(r);
  }
  CollectedMethods out;
  out.common = figures::common_rows(
      measured, [&](std::size_t r) { return selectors.at(r); },
      [&](std::size_t r) { return figures::words_of_place(table, r); });
  for (const std::size_t r : out.common.rows) {
    EqualCostMethod& method = by_name[selectors.at(r)];
    if (!std::isnan(reached[r])) method.reached.push_back(reached[r]);
    if (has_layers && table.has("best_mass")) method.best_mass.add(table.numbers("best_mass")[r]);
    for (std::size_t m = 0; m < metrics.size(); ++m) {
      const double value = table.numbers(metrics[m].column)[r];
      if (std::isnan(value)) continue;
      method.values[m].middle.add(value);
      const std::string stem = figures::interval_stem(table, metrics[m].column);
      if (stem.empty()) continue;
      method.values[m].ends.add(table.numbers(stem + "_low")[r], table.numbers(stem + "_high")[r]);
    }
  }
  for (auto& [name, method] : by_name) out.methods.push_back(std::move(method));
  return out;
}

/// Why methods of the same cost lie beyond the oracle; empty where none does.
std::string beyond_oracle(const std::vector<EqualCostMethod>& methods, std::size_t panel,
                          const EqualCostMetric& metric, bool is_live) {
  const auto oracle = std::ranges::find(methods, kOracle, &EqualCostMethod::selector);
  if (oracle == methods.end()) return "";
  std::size_t n = 0;
  for (const EqualCostMethod& one : methods) {
    if (!one.notes.empty() || is_oracle(one.selector)) continue;
    const double beyond =
        (one.values[panel].middle.value() - oracle->values[panel].middle.value()) *
        (metric.is_better_low ? -1.0 : 1.0);
    n += beyond > kSeen ? 1 : 0;
  }
  if (n == 0) return "";
  return fmt::format("{} {} beyond the oracle: {}.", n, n == 1 ? "method is" : "methods are",
                     is_live                ? "it bounds no answer"
                     : metric.is_better_low ? "it minimises no error"
                                            : "uneven rows");
}

/// A line per method under its heading.
struct EqualCostRows {
  std::vector<plot::Tick> ticks;  // methods and headings
  std::vector<double> places;     // of the methods
  double end = 0.0;
};

EqualCostRows rows_of_methods(const std::vector<EqualCostMethod>& methods, bool is_narrow) {
  EqualCostRows rows;
  int family = -1;
  for (const EqualCostMethod& one : methods) {
    const auto [order, title] = heading_of(one.selector, is_narrow);
    if (order != family) {
      if (family >= 0) rows.end += 0.3;
      rows.ticks.push_back({rows.end, title + ":"});
      rows.end += 1.0;
      family = order;
    }
    std::string label = figures::method_label(one.selector);
    if (!one.notes.empty() && !one.reached.empty()) {
      const auto [least, most] = std::ranges::minmax(one.reached);
      label += most > 1.05 * least
                   ? fmt::format(" [{} to {}]", number_text(least, 3), number_text(most, 3))
                   : fmt::format(" [{}]", number_text(mean(one.reached), 3));
    }
    rows.ticks.push_back({rows.end, std::move(label)});
    rows.places.push_back(rows.end);
    rows.end += 1.0;
  }
  return rows;
}

/// What the dots of a panel have beside them.
struct EqualCostExtras {
  bool has_intervals = false;
  bool has_best = false;
};

/// Marks of one metric, from the back to the front.
std::vector<plot::Mark> equal_cost_marks(const std::vector<EqualCostMethod>& methods,
                                         const std::vector<double>& places, std::size_t metric,
                                         bool is_mass, const std::string& target,
                                         EqualCostExtras& extras) {
  const plot::Tone is_other{plot::Role::neutral, 0};
  plot::Scatter met{.label = fmt::format("{} met", target), .size = 1.2};
  plot::Scatter other{.label = "another cost [as measured]", .tone = is_other, .size = 1.2};
  plot::Scatter best{.label = "as many keys in each row, the best",
                     .tone = {plot::Role::highlight, 0},
                     .size = 0.7};
  plot::Line interval{.markers = false};
  plot::Line other_interval{.tone = is_other, .markers = false};
  for (std::size_t i = 0; i < methods.size(); ++i) {
    const EqualCostValue& value = methods[i].values[metric];
    const double middle = value.middle.value();
    const bool is_met = methods[i].notes.empty();
    (is_met ? met : other).add(middle, places[i]);
    if (value.ends.high() > value.ends.low()) {
      extras.has_intervals = true;
      plot::Line& line = is_met ? interval : other_interval;
      line.add(value.ends.low(), places[i]);
      line.add(value.ends.high(), places[i]);
      line.add(kNan, kNan);
    }
    if (is_mass && is_met && methods[i].best_mass.value() > middle + kSeen)
      best.add(methods[i].best_mass.value(), places[i]);
  }
  std::vector<plot::Mark> marks;
  for (const std::string_view bound : {kOracle, kCeiling}) {
    const auto found = std::ranges::find(methods, bound, &EqualCostMethod::selector);
    if (found == methods.end() || !std::isfinite(found->values[metric].middle.value())) continue;
    if (bound == kCeiling && !is_mass) continue;  // the ceiling bounds mass alone
    marks.emplace_back(
        plot::Rule{plot::Rule::Kind::vertical,
                   found->values[metric].middle.value(),
                   figures::method_label(bound),
                   {bound == kOracle ? plot::Role::reference : plot::Role::highlight, 0}});
  }
  extras.has_best = extras.has_best || !best.x.empty();
  for (plot::Mark mark :
       std::initializer_list<plot::Mark>{best, other_interval, interval, other, met}) {
    if (plot::count_points(mark) > 0) marks.push_back(std::move(mark));
  }
  return marks;
}

/// What was turned, over what the means are, and what stands beside the dots.
void add_captions(plot::Figure& figure, const Table& table, const std::vector<std::size_t>& rows,
                  const std::vector<EqualCostMethod>& methods, const std::string& target,
                  const EqualCostExtras& extras) {
  const bool is_live = !is_sweep(table);
  const bool are_means = std::ranges::any_of(
      methods, [](const auto& one) { return one.values.front().middle.n() > 1; });
  const std::string over = is_live
                               ? figures::means_over_methods(table, rows)
                               : "Means over the layers without a sliding window" +
                                     std::string(has_several_traces(table) ? " and traces." : ".");
  figure.caption.push_back(fmt::format(
      "Every method with its budget setting (its budget, or the option that sets its cost) turned "
      "until the measured cost is {}: dense layers count, and so do keys that are kept in addition "
      "to the budget.{}{}",
      target, over.empty() ? "" : " ", over));
  if (extras.has_intervals) {
    figure.caption.push_back(
        fmt::format("Lines: the result's 95% intervals{}.",
                    !is_live ? " of each layer's mean over calls (bootstrap), their ends averaged"
                    : are_means ? ", their ends averaged"
                                : ""));
  }
  if (extras.has_best) {
    figure.caption.emplace_back(
        "Stars: what as many keys in each row would hold if they were the best; from a method "
        "to its star is lost by choosing keys, from there to the ceiling by dividing them over "
        "rows, heads and layers.");
  }
}

plot::Figure make_equal_cost(const FigureInput& input) {
  const Table table = rows_of(*input.results[0]);
  const FigureOptions& options = input.options;
  const MatchedRows matched(table);
  const std::string target = target_shown(table, matched, options.budget);
  const bool is_live = !is_sweep(table);
  const std::vector<EqualCostMetric> metrics = metrics_of(table, options);
  const std::string phase = !options.phase.empty() || is_live ? options.phase
                            : table.n_rows() > 0              ? table.text("phase").at(0)
                                                              : "";
  auto [methods, common] = collect_methods(table, matched, options, phase, target, metrics);

  figures::LeftOut not_shown;
  std::erase_if(methods, [&](const EqualCostMethod& one) {
    const bool has_none = std::isnan(one.values.front().middle.value());
    if (has_none) not_shown.add(one.selector, one.notes.empty() ? "" : one.notes.front());
    return has_none;
  });
  if (methods.empty()) figures::fail_empty(table.name(), "no method was measured");
  std::ranges::stable_sort(methods, [&](const EqualCostMethod& a, const EqualCostMethod& b) {
    const int family_a = heading_of(a.selector).first;
    const int family_b = heading_of(b.selector).first;
    if (family_a != family_b) return family_a < family_b;
    const double x = a.values.front().middle.value();
    const double y = b.values.front().middle.value();
    return metrics.front().is_better_low ? x < y : x > y;
  });

  const EqualCostRows rows = rows_of_methods(methods, /*is_narrow=*/metrics.size() == 1);
  plot::Figure figure = figures::panels_in_rows(metrics.size(), static_cast<int>(metrics.size()));
  figure.share_y = true;
  EqualCostExtras extras;
  std::vector<std::string> beyond;
  for (std::size_t m = 0; m < metrics.size(); ++m) {
    figure.panels.push_back(
        {.x = {.label = metrics[m].label, .scale = metrics[m].scale},
         .y = figures::names_axis(rows.ticks, {-0.7, rows.end - 0.3}),
         .marks = equal_cost_marks(methods, rows.places, m, metrics[m].column == "mass_mean",
                                   target, extras),
         .aspect = (metrics.size() == 1 ? 0.075 : 0.032 * static_cast<double>(metrics.size())) *
                   rows.end});
    if (metrics[m].is_bounded || metrics[m].is_better_low) {
      const std::string why = beyond_oracle(methods, m, metrics[m], is_live);
      if (!why.empty())
        beyond.push_back(metrics.size() > 1 ? fmt::format("{}: {}", metrics[m].label, why) : why);
    }
  }

  if (!phase.empty()) figure.caption.push_back(fmt::format("Phase: {}.", phase));
  add_captions(figure, table, common.rows, methods, target, extras);
  if (const std::string lacking = common.sentence(is_live ? "place" : "layer"); !lacking.empty())
    figure.caption.push_back(lacking);
  figures::LeftOut not_met;
  for (const EqualCostMethod& one : methods) {
    for (const std::string& note : one.notes) not_met.add(one.selector, note);
  }
  not_met.say("Another cost", figure.caption);
  not_shown.say("Not shown", figure.caption);
  if (!beyond.empty()) {
    figure.caption.insert(figure.caption.end(), beyond.begin(), beyond.end());
    figure.caption.emplace_back(
        is_live
            ? "The oracle keeps the keys with the largest weights, which is no bound on what "
              "the model says."
            : "The oracle keeps the keys with the largest weights, as many in each row; methods "
              "that give some rows and heads more keys than others can hold more at the same "
              "mean. It does not minimise errors.");
  }
  return figure;
}

}  // namespace

FigureKind figure_equal_cost() {
  return {
      .name = "equal-cost",
      .shows =
          "every method at one measured cost, by family and best first: mass kept and output "
          "error, or a closed loop's perplexity, accuracy or acceptance",
      .needs = "the table of a sweep or simulation at equal cost (--match)",
      .command =
          "kvscope sweep trace.h5 --phase decode --selector all --match density=0.05 --out "
          "equal.h5",
      .kinds = {"sweep|simulate-perplexity|simulate-retrieval|simulate-speculative|table"},
      .options = {"metric", "selector", "budget", "phase"},
      .make = make_equal_cost,
  };
}

}  // namespace kvscope
