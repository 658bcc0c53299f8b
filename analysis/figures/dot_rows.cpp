// Dots on named rows, a panel per number.
#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/base/mapped.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "analysis/figures/summary_rows.hpp"
#include "analysis/plot/data_range.hpp"
#include "analysis/plot/scale.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"
#include "core/trace/result.hpp"

namespace kvscope::figures {

namespace {

/// What stands on one line of the panels.
struct NamedRow {
  std::string name;
  std::vector<const Json*> rows;
  bool is_refused() const {
    return std::ranges::all_of(rows,
                               [](const Json* row) { return !text_at(*row, "refused").empty(); });
  }
};

std::vector<NamedRow> named_rows(const DotRows& spec, const Json& rows, LeftOut& refused) {
  std::vector<NamedRow> named;
  for (const Json& row : rows) {
    const std::string of = spec.by.empty() ? "" : text_at(row, spec.by);
    if (std::ranges::none_of(spec.marks, [&](const RowMarks& marks) { return marks.of == of; }))
      continue;
    std::string name = spec.name(row);
    if (!text_at(row, "refused").empty()) refused.add(name, text_at(row, "refused"));
    if (spec.by.empty() || named.empty() || named.back().name != name)
      named.push_back({std::move(name), {}});
    named.back().rows.push_back(&row);
  }
  return named;
}

/// The marks' numbers in a panel; `largest` grows with them.
plot::Mark points_of(const RowMarks& marks, const DotRows& spec, const Quantity& shown,
                     const std::vector<NamedRow>& named, double& largest) {
  std::vector<double> x;
  std::vector<double> y;
  for (std::size_t i = 0; i < named.size(); ++i) {
    for (const Json* row : named[i].rows) {
      const double value = number_at(*row, marks.prefix + shown.name);
      if (!std::isfinite(value) || (!marks.of.empty() && text_at(*row, spec.by) != marks.of))
        continue;
      x.push_back(value);
      y.push_back(static_cast<double>(i));
      largest = std::max(largest, value);
    }
  }
  const plot::Tone tone{plot::Role::series, marks.slot};
  if (marks.joined) return plot::Line{marks.label, tone, std::move(x), std::move(y), {}, {}};
  return plot::Scatter{marks.label, tone, std::move(x), std::move(y), {}, 1.3};
}

/// The middle of the widest room on a row without marks, as a part of the panel's width.
double middle_of_room(const std::vector<plot::Mark>& marks, const plot::Scale& across, double row) {
  std::set<double> taken = {0.0, 1.0};
  for (const plot::Mark& mark : marks) {
    if (const auto* rule = std::get_if<plot::Rule>(&mark)) taken.insert(across.to_unit(rule->at));
    const auto* line = std::get_if<plot::Line>(&mark);
    for (std::size_t i = 0; line != nullptr && i < line->x.size(); ++i)  // also as it passes by
      if (std::abs(line->y[i] - row) <= 1.0) taken.insert(across.to_unit(line->x[i]));
    const auto* dots = std::get_if<plot::Scatter>(&mark);
    for (std::size_t i = 0; dots != nullptr && i < dots->x.size(); ++i)
      if (dots->y[i] == row) taken.insert(across.to_unit(dots->x[i]));
  }
  double widest = 0.0;
  double middle = 0.5;
  for (auto at = taken.begin(); std::next(at) != taken.end(); ++at) {
    if (*std::next(at) - *at <= widest) continue;
    widest = *std::next(at) - *at;
    middle = *at + 0.5 * widest;
  }
  return middle;
}

}  // namespace

plot::Figure dot_rows(const DotRows& spec, const FigureInput& input) {
  const ResultView& result = *input.results[0];
  const Json* rows = list_at(result.summary(), "rows");
  if (rows == nullptr) throw FormatError("{}: the summary has no rows", result.name());
  const auto metrics = mapped<std::string>(spec.panels, &Quantity::name);
  std::vector<std::string> wanted = parse_words(input.options.metric);
  if (wanted.empty()) wanted = metrics;
  LeftOut refused;
  const std::vector<NamedRow> named = named_rows(spec, *rows, refused);
  const auto names = mapped<std::string>(named, &NamedRow::name);
  const auto n = static_cast<double>(named.size());

  plot::Figure figure = panels_in_rows(wanted.size(), static_cast<int>(wanted.size()));
  figure.share_y = true;
  for (const std::string& word : wanted) {
    const Quantity& shown = spec.panels[metric_slot(word, metrics)];
    plot::Panel panel;
    panel.x.label = shown.label;
    panel.x.format = shown.format;
    panel.x.scale = shown.scale;
    panel.y = names_axis(names);
    panel.aspect = wanted.size() == 1 ? spec.aspect_alone : spec.aspect;
    const double first = spec.first.empty() ? kNan : number_at(rows->front(), shown.name);
    if (std::isfinite(first))
      panel.marks.emplace_back(plot::Rule{plot::Rule::Kind::vertical, first, spec.first});
    double largest = 0.0;
    std::size_t n_points = 0;
    for (const RowMarks& marks : spec.marks) {
      plot::Mark points = points_of(marks, spec, shown, named, largest);
      n_points += plot::count_points(points);
      if (plot::count_points(points) > 0) panel.marks.push_back(std::move(points));
    }
    if (n_points == 0) throw ConfigError("{}: no method could take any case", result.name());
    if (shown.range) panel.x.range = shown.range(largest);
    const std::vector<plot::Mark> dots = panel.marks;
    const plot::Range across = plot::ranges_of({.panels = {panel}}).front().x;
    for (std::size_t i = 0; i < named.size(); ++i) {
      if (!named[i].is_refused()) continue;
      const auto row = static_cast<double>(i);
      const double middle = middle_of_room(dots, plot::Scale(panel.x.scale, across), row);
      panel.marks.emplace_back(plot::Note{"not taken", middle, (row + 0.6) / (n + 0.2) - 0.5 / n,
                                          plot::Note::Align::centre});
    }
    figure.panels.push_back(std::move(panel));
  }
  figure.caption.push_back(spec.caption(result.info().config));
  refused.say("Not taken", figure.caption);
  return figure;
}

}  // namespace kvscope::figures
