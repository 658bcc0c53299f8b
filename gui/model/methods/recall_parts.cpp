#include "gui/model/methods/recall_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "analysis/base/statistics.hpp"
#include "core/base/error.hpp"
#include "core/base/nan.hpp"

namespace kvscope::gui {

/// The sweep's name of a metric.
std::string_view sweep_column(RecallMetric metric) {
  constexpr std::string_view kColumns[] = {"mass", "recall10", "recallk", "output_error",
                                           "output_error_rel"};
  return kColumns[static_cast<std::size_t>(metric)];
}

figures::Along sweep_axis(RecallAlong along) {
  constexpr figures::Along kAxes[] = {figures::Along::keys, figures::Along::bytes,
                                      figures::Along::flops, figures::Along::budget};
  return kAxes[static_cast<std::size_t>(along)];
}

bool takes_tokens(const std::optional<Budget>& budget) {
  return budget && budget->kind == Budget::Kind::tokens;
}

FigureOptions recall_figure_options(const RecallQuestion& question) {
  FigureOptions options;
  options.metric = sweep_column(question.options.metric);
  options.band = question.options.band;
  if (question.options.scope != RecallScope::all_layers) {
    options.layers = fmt::format("{}", question.layer);
  }
  if (question.options.scope == RecallScope::head) {
    options.heads = fmt::format("{}", question.q_head);
  }
  return options;
}

bool metric_is_share(RecallMetric metric) {
  return figures::sweep_metric(sweep_column(metric)).is_share;
}

namespace {

/// "layers 0 to 4": those of the rows.
std::string layers_over(const Table& table, const figures::SweepSelection& selection) {
  std::set<Index> layers;
  for (const std::size_t r : selection.rows)
    layers.insert(static_cast<Index>(table.numbers("layer")[r]));
  return layer_words({layers.begin(), layers.end()});
}

}  // namespace

std::string means_over(const RecallQuestion& question, const Table& table,
                       const figures::SweepSelection& selection) {
  const auto n_rows = static_cast<Index>(table.numbers("rows")[selection.rows.front()]);
  const bool is_sample = n_rows < question.n_queries;
  return fmt::format("{}, {}, {}{} {} queries", layers_over(table, selection),
                     question.options.scope == RecallScope::head
                         ? fmt::format("query head {}", question.q_head)
                         : std::string("all query heads"),
                     n_rows, is_sample ? fmt::format(" of {}", question.n_queries) : "",
                     enum_name(question.phase));
}

void note_budgets(RecallPicture& picture, const RecallQuestion& question, const Table& table) {
  const auto budgets = table.numbers("budget");
  const auto& marks = picture.figure.panels.front().marks;
  picture.mark_budgets.assign(marks.size(), {});
  for (std::size_t m = 0; m < marks.size(); ++m) {
    const auto* line = std::get_if<plot::Line>(&marks[m]);
    const auto method =
        std::ranges::find(question.methods, picture.mark_methods[m], &MethodItem::name);
    if (line == nullptr || method == question.methods.end()) continue;
    const bool has_tokens = takes_tokens(budget_of(method->spec, question.parameters));
    for (const std::size_t row : line->of)
      picture.mark_budgets[m].push_back(has_tokens ? budgets[row] : kNan);
    if (has_tokens && (method->name == question.selector || !picture.reference))
      picture.reference = m;
  }
}

void note_targets(RecallPicture& picture, const RecallQuestion& question, const Table& table,
                  const figures::SweepSelection& selection, const std::vector<bool>& is_current) {
  const double target = question.options.target;
  if (!metric_is_share(question.options.metric) || !(target > 0.0)) return;
  const auto values =
      table.numbers(figures::sweep_metric(sweep_column(question.options.metric)).column);
  const auto budgets = table.numbers("budget");
  const auto layers = table.numbers("layer");
  const auto heads = table.numbers("q_head");
  const TextColumn& selectors = table.text("selector");
  const TextColumn& kinds = table.text("budget_kind");
  for (RecallNumbers& line : picture.numbers) {
    const auto method = std::ranges::find(question.methods, line.name, &MethodItem::name);
    std::map<double, Mean> means;
    std::map<std::pair<double, double>, std::optional<Index>> needed;  // by layer and head
    const bool is_selected = line.name == question.selector;
    if (is_selected) picture.failing_method = line.name;
    for (const std::size_t r : selection.rows) {
      if (selectors.at(r) != method->spec) continue;
      const bool has_tokens =
          kinds.at(r) == "tokens" && takes_tokens(budget_of(method->spec, question.parameters));
      if (has_tokens) means[budgets[r]].add(values[r]);
      if (!is_selected) continue;
      if (has_tokens && values[r] >= target) {
        auto& least = needed[{layers[r], heads[r]}];
        const auto budget = static_cast<Index>(budgets[r]);
        least = least ? std::min(*least, budget) : budget;
      }
      if (!is_current[r] || !(values[r] < target)) continue;
      picture.failing.push_back(
          {static_cast<Index>(layers[r]), static_cast<Index>(heads[r]), values[r], std::nullopt});
    }
    for (const auto& [budget, mean] : means) {
      if (line.for_target || !(mean.value() >= target)) continue;
      line.for_target = static_cast<Index>(budget);
    }
    if (!is_selected) continue;
    for (FailingHead& head : picture.failing) {
      const auto found =
          needed.find({static_cast<double>(head.layer), static_cast<double>(head.q_head)});
      if (found != needed.end()) head.needed = found->second;
    }
  }
  std::ranges::stable_sort(picture.failing, {}, &FailingHead::value);
}

/// Throws ConfigError unless the sweep is of the question's trace and of no other.
void check_is_of_trace(const OpenedSweep& sweep, const RecallQuestion& question) {
  const auto& hashes = sweep.trace_hashes;  // empty ones are of recordings that were not whole
  if (hashes.empty())
    throw ConfigError("the file does not say of which trace it is; the sweep's .h5 file does");
  const bool is_of_trace = std::ranges::find(hashes, question.content_hash) != hashes.end();
  if (question.content_hash.empty() || !is_of_trace)
    throw ConfigError("it is of another trace than {}", question.trace);
  if (hashes.size() > 1)
    throw ConfigError("it is of {} traces, and means over all of them are of none; sweep {} alone",
                      hashes.size(), question.trace);
}

void add_opened(RecallPicture& picture, const RecallQuestion& question,
                const std::vector<OpenedSweep>& opened) {
  plot::Panel& panel = picture.figure.panels.front();
  int source = 0;
  for (const OpenedSweep& sweep : opened) {
    ++source;
    FigureOptions options = recall_figure_options(question);
    options.phase = std::string(enum_name(question.phase));
    options.band = BandKind::none;
    plot::Figure figure;
    std::string over;
    std::string layers;
    try {
      check_is_of_trace(sweep, question);
      figure = figures::sweep_curves(*sweep.table, options, sweep_axis(question.options.along),
                                     options.metric);
      const auto selection = figures::select_sweep_rows(
          *sweep.table, options, figures::DenseLayers::leave_out_for_all,
          picture.along == RecallAlong::budget ? figures::BudgetKinds::usual
                                               : figures::BudgetKinds::all);
      layers = layers_over(*sweep.table, selection);
      over = means_over(question, *sweep.table, selection);
      // Shares of the context, or the budget of a table without the column "kept", are no places
      // on an axis of tokens.
      const std::string& along = figure.panels.front().x.label;
      if (along != panel.x.label)
        throw ConfigError("it runs along \"{}\", the curves here along \"{}\"", along,
                          panel.x.label);
    } catch (const ConfigError& e) {  // another trace, other layers, heads, phases or axes
      std::string why = e.what();
      if (why.starts_with(sweep.table->name() + ": ")) why.erase(0, sweep.table->name().size() + 2);
      picture.notes.push_back(fmt::format("Nothing of {} is shown: {}.", sweep.name, why));
      continue;
    }
    const auto chunk = static_cast<double>(question.parameters.chunk);
    const bool is_other = question.phase == Phase::prefill && std::abs(sweep.chunk - chunk) > 0.0;
    const std::string chunks = is_other ? fmt::format(", chunks of {}", sweep.chunk) : "";
    for (plot::Mark& mark : figure.panels.front().marks) {
      auto* line = std::get_if<plot::Line>(&mark);
      if (line == nullptr) continue;
      line->label += fmt::format(" ({}{}{})", figures::method_label(sweep.name),
                                 picture.of.starts_with(layers + ",") ? "" : ": " + layers, chunks);
      line->tone.source = source;  // another dash
      line->markers = line->x.size() == 1;
      panel.marks.push_back(std::move(mark));
      picture.mark_methods.emplace_back();
    }
    picture.figure.caption.push_back(
        fmt::format("Curves without markers: the opened sweep {}, {}{}. {}", sweep.name, over,
                    chunks, fmt::join(figure.caption, " ")));
  }
}

std::optional<double> place_of_budget(const RecallPicture& picture, std::size_t mark,
                                      double budget) {
  if (picture.along == RecallAlong::budget) return budget;
  if (mark >= picture.mark_budgets.size()) return std::nullopt;
  const auto& line = std::get<plot::Line>(picture.figure.panels.front().marks[mark]);
  std::map<double, double> curve;  // log of the budget -> log of the place
  for (std::size_t i = 0; i < picture.mark_budgets[mark].size(); ++i) {
    const double known = picture.mark_budgets[mark][i];
    if (known == budget) return line.x[i];
    if (known > 0.0 && line.x[i] > 0.0) curve[std::log(known)] = std::log(line.x[i]);
  }
  if (curve.empty() || !(budget > 0.0)) return std::nullopt;
  const double wanted = std::log(budget);
  const auto right = curve.lower_bound(wanted);
  if (right == curve.begin()) return std::exp(right->second);
  if (right == curve.end()) return std::exp(curve.rbegin()->second);
  const auto left = std::prev(right);
  const double part = (wanted - left->first) / (right->first - left->first);
  return std::exp(left->second + part * (right->second - left->second));
}

plot::Figure with_budget_rule(plot::Figure figure, const RecallPicture& picture, Index budget) {
  const bool is_nominal = picture.along == RecallAlong::budget;
  if (!is_nominal && !picture.reference) return figure;
  const auto at =
      place_of_budget(picture, picture.reference.value_or(0), static_cast<double>(budget));
  if (!at) return figure;
  for (plot::Panel& panel : figure.panels) {
    panel.marks.emplace_back(plot::Rule{.kind = plot::Rule::Kind::vertical,
                                        .at = *at,
                                        .label = fmt::format("budget of {}", budget),
                                        .tone = {plot::Role::neutral, 0}});
  }
  figure.caption.push_back(is_nominal
                               ? fmt::format("Vertical line: a budget of {} tokens.", budget)
                               : fmt::format("Vertical line: {} at a budget of {} tokens.",
                                             picture.mark_methods[*picture.reference], budget));
  return figure;
}

RecallPlace recall_place(const RecallPicture& picture, Index n_tokens, double x,
                         std::optional<std::size_t> mark) {
  RecallPlace place;
  if (mark && *mark < picture.mark_methods.size()) place.method = picture.mark_methods[*mark];
  const bool has_ladder = place.method.empty() || takes_tokens(budget_of(place.method, {}));
  if (!has_ladder) return place;  // its one point says nothing about budgets in tokens
  const bool is_nominal = picture.along == RecallAlong::budget;
  const auto by = place.method.empty() ? picture.reference : mark;
  double nearest = std::numeric_limits<double>::infinity();
  for (const Index budget : budget_ladder(n_tokens)) {
    const auto at = is_nominal ? std::optional(static_cast<double>(budget))
                    : by       ? place_of_budget(picture, *by, static_cast<double>(budget))
                               : std::nullopt;
    if (!at) continue;
    const double distance = std::abs(std::log2(std::max(x, 1e-3)) - std::log2(std::max(*at, 1e-3)));
    if (distance >= nearest) continue;
    nearest = distance;
    place.budget = budget;
  }
  return place;
}

}  // namespace kvscope::gui
