#include "gui/model/methods/recall_view.hpp"
#include "core/base/fields_json.hpp"
#include "gui/model/results/compact_figure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "analysis/base/statistics.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/sweep_curves.hpp"
#include "core/base/error.hpp"
#include "gui/model/methods/recall_parts.hpp"

namespace kvscope::gui {

namespace {

constexpr Index kSmallestBudget = 16;

std::vector<Index> layers_of(const RecallQuestion& question) {
  return question.options.scope == RecallScope::all_layers ? question.layers
                                                           : std::vector<Index>{question.layer};
}

bool is_in_scope(const SweepRow& row, const RecallQuestion& question) {
  // A layer's own row (no head) carries the interval of its mean.
  return question.options.scope != RecallScope::head ||
         row.number(SweepNumber::q_head) == static_cast<double>(question.q_head);
}

/// Which items the curves are made of: all over the same layers.
struct Covered {
  std::vector<bool> is_used;  // by item
  std::string unfinished;     // RecallPicture::unfinished
};

Covered covered_by(const RecallQuestion& question, const std::vector<RecallItem>& items,
                   const std::vector<std::shared_ptr<const MethodRows>>& rows) {
  std::map<std::pair<std::size_t, bool>, std::set<Index>> known;  // by method and is_ladder
  for (std::size_t i = 0; i < items.size(); ++i) {
    auto& there = known[{items[i].method, items[i].is_ladder}];
    if (rows[i]) there.insert(items[i].request.layers.begin(), items[i].request.layers.end());
  }
  std::vector<Index> layers = layers_of(question);
  const std::size_t n_asked = layers.size();
  const bool is_any_whole = std::ranges::any_of(known, [&](const auto& entry) {
    return entry.first.second && entry.second.size() == n_asked;
  });
  for (const auto& entry : known) {
    const auto& there = entry.second;
    if (!is_any_whole && entry.first.second && !there.empty())
      std::erase_if(layers, [&](Index layer) { return !there.contains(layer); });
  }
  Covered covered;
  for (const RecallItem& item : items) {
    covered.is_used.push_back(std::ranges::includes(layers, item.request.layers) &&
                              std::ranges::includes(known[{item.method, true}], layers) &&
                              std::ranges::includes(known[{item.method, item.is_ladder}], layers));
  }
  if (!is_any_whole && !items.empty())
    covered.unfinished = fmt::format("{} of {} layers so far", layers.size(), n_asked);
  for (const auto& [series, there] : known) {
    if (there.size() == n_asked || (!is_any_whole && std::ranges::includes(there, layers)))
      continue;
    covered.unfinished +=
        fmt::format("{}{} lacks {} of {} layers{}", covered.unfinished.empty() ? "" : ", ",
                    question.methods[series.first].name, n_asked - there.size(), n_asked,
                    series.second ? "" : fmt::format(" at {}", question.parameters.budget));
  }
  return covered;
}

/// Rows of all methods as one table, and which of them lie at the current budget.
struct Collected {
  std::vector<SweepRow> moved;  // rows of methods that take a share p, at the keys they keep
  std::vector<const SweepRow*> rows;
  std::vector<bool> is_current;
  std::size_t n_windowed = 0;
};

/// A method that takes a share p is drawn as one point: its budget becomes the mean of the keys
/// that its heads keep.
void place_at_kept_keys(std::vector<SweepRow>& rows) {
  Mean kept;
  for (const SweepRow& row : rows) {
    if (row.number(SweepNumber::window) == 0.0) kept.add(row.number(SweepNumber::kept));
  }
  for (SweepRow& row : rows) {
    row.text(SweepText::budget_kind) = "tokens";
    row.number(SweepNumber::budget) = kept.n() > 0 ? std::max(1.0, kept.value()) : 1.0;
  }
}

Collected collect(const RecallQuestion& question, const std::vector<RecallItem>& items,
                  const std::vector<std::shared_ptr<const MethodRows>>& rows,
                  const Covered& covered) {
  Collected out;
  std::vector<std::pair<std::size_t, std::vector<SweepRow>>> shares;  // by method
  const auto current = static_cast<double>(question.parameters.budget);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!rows[i] || !covered.is_used[i]) continue;
    const MethodRowsRequest& request = items[i].request;
    const bool is_share = question.options.along == RecallAlong::budget &&
                          !request.budgets.empty() && !takes_tokens(request.budgets[0]);
    if (is_share && (shares.empty() || shares.back().first != items[i].method)) {
      shares.emplace_back(items[i].method, std::vector<SweepRow>());
    }
    for (const SweepRow& row : rows[i]->rows) {
      if (!is_in_scope(row, question)) continue;
      out.n_windowed += row.number(SweepNumber::window) != 0.0;
      if (is_share) {
        shares.back().second.push_back(row);
        continue;
      }
      out.rows.push_back(&row);
      out.is_current.push_back(request.budgets.empty() || !takes_tokens(request.budgets[0]) ||
                               row.number(SweepNumber::budget) == current);
    }
  }
  for (auto& [method, of_method] : shares) {
    place_at_kept_keys(of_method);
    for (SweepRow& row : of_method) out.moved.push_back(std::move(row));
  }
  for (const SweepRow& row : out.moved) {
    out.rows.push_back(&row);
    out.is_current.push_back(true);
  }
  return out;
}

std::string why_nothing(const RecallQuestion& question, const Collected& collected) {
  const std::string layers = layer_words(layers_of(question));
  if (collected.rows.empty()) return "Tick a method at the left to see its curve.";
  if (collected.n_windowed == collected.rows.size()) {
    return fmt::format(
        "The heads of {} look through a sliding window, and methods leave them dense: choose a "
        "layer with full attention.",
        layers);
  }
  return fmt::format(
      "One of the ticked methods leaves {} dense, so that there is nothing to compare: choose a "
      "later layer, or lower \"dense-layers\".",
      layers);
}

std::vector<RecallNumbers> numbers_at_budget(const RecallQuestion& question, const Table& table,
                                             const figures::SweepSelection& selection,
                                             const std::vector<bool>& is_current) {
  static constexpr std::pair<const char*, double RecallNumbers::*> kColumns[] = {
      {"mass_mean", &RecallNumbers::mass},  {"recall10", &RecallNumbers::recall10},
      {"recallk", &RecallNumbers::recallk}, {"output_error", &RecallNumbers::output_error},
      {"kept", &RecallNumbers::kept},       {"bytes", &RecallNumbers::bytes}};
  const TextColumn& selectors = table.text("selector");
  std::vector<RecallNumbers> out;
  for (const MethodItem& method : question.methods) {
    std::vector<std::size_t> rows;
    for (const std::size_t r : selection.rows)
      if (is_current[r] && selectors.at(r) == method.spec) rows.push_back(r);
    const bool is_shown =
        std::ranges::find(selection.selectors, method.spec.text()) != selection.selectors.end();
    if (!is_shown) continue;
    RecallNumbers line;
    line.n_heads = rows.size();
    for (const auto& [name, number] : kColumns) {
      Mean mean;
      for (const std::size_t r : rows) mean.add(table.numbers(name)[r]);
      line.*number = mean.value();
    }
    line.name = method.name;
    const auto budget = budget_of(method.spec, question.parameters);
    if (budget) {
      line.budget = takes_tokens(budget) ? fmt::format("{}", question.parameters.budget)
                                         : fmt::format("p = {}", budget->value);
    }
    out.push_back(std::move(line));
  }
  return out;
}

/// Legend entries in the words of the list of methods; returns the method of every mark.
std::vector<std::string> relabel(plot::Panel& panel, const RecallQuestion& question) {
  std::vector<std::string> methods;
  for (plot::Mark& mark : panel.marks) {
    std::string* label = nullptr;
    if (auto* line = std::get_if<plot::Line>(&mark)) label = &line->label;
    if (auto* rule = std::get_if<plot::Rule>(&mark)) label = &rule->label;
    methods.emplace_back();
    if (label == nullptr) continue;
    for (const MethodItem& method : question.methods) {
      if (*label != figures::method_label(method.spec.text())) continue;
      methods.back() = method.name;
      *label = figures::method_label(method.name);
      const auto budget = budget_of(method.spec, question.parameters);
      if (budget && !takes_tokens(budget)) *label += fmt::format(" ($p$ = {})", budget->value);
      break;
    }
  }
  return methods;
}

/// Bands end above zero where zero has no place.
void fit_to_log(plot::Panel& panel) {
  double smallest = std::numeric_limits<double>::infinity();
  for (const plot::Mark& mark : panel.marks) {
    const auto* line = std::get_if<plot::Line>(&mark);
    if (line == nullptr) continue;
    for (double y : line->y) {
      if (y > 0.0) smallest = std::min(smallest, y);
    }
  }
  for (plot::Mark& mark : panel.marks) {
    auto* line = std::get_if<plot::Line>(&mark);
    if (line == nullptr) continue;
    for (double& low : line->low) low = std::max(low, 0.5 * smallest);
  }
  panel.y.scale = plot::ScaleKind::log10;
}

void set_axes(plot::Panel& panel, const RecallQuestion& question) {
  if (question.options.y == AxisScale::log) fit_to_log(panel);
  if (question.options.along != RecallAlong::budget) {
    if (question.options.x == AxisScale::linear) panel.x.scale = plot::ScaleKind::linear;
    return;
  }
  panel.x.label = "Budget (tokens)";
  panel.x.format = plot::TickFormat::tokens;
  panel.x.ticks.clear();
  if (question.options.x == AxisScale::log) {
    panel.x.scale = plot::ScaleKind::log2;
    std::vector<double> ladder;
    for (Index budget : budget_ladder(question.n_tokens)) {
      ladder.push_back(static_cast<double>(budget));
    }
    panel.x.ticks = figures::ticks_at(ladder, plot::TickFormat::tokens);
  } else {
    panel.x.scale = plot::ScaleKind::linear;
  }
}

std::string_view along_words(RecallAlong along) {
  static constexpr std::string_view kWords[] = {
      "the keys that a query attends to, as measured", "the bytes read, as measured",
      "the FLOPs of scoring and attending, as measured", "the budget of past keys"};
  return kWords[static_cast<std::size_t>(along)];
}

std::vector<std::string> caption_of(const RecallQuestion& question, const RecallPicture& picture) {
  std::vector<std::string> caption;
  caption.push_back(fmt::format("{}, {}: {} against {}.", question.trace, picture.of,
                                enum_name(question.options.metric),
                                along_words(question.options.along)));
  if (!picture.unfinished.empty())
    caption.push_back(fmt::format("Not whole: {}.", picture.unfinished));
  std::vector<std::string> specs;
  bool has_share = false;
  for (const MethodItem& method : question.methods) {
    if (!method.obstacle.empty()) continue;
    if (method.spec != method.name) specs.push_back(method.spec.text());
    const auto budget = budget_of(method.spec, question.parameters);
    has_share = has_share || (budget && !takes_tokens(budget));
  }
  if (!specs.empty()) caption.push_back(fmt::format("Settings: {}.", fmt::join(specs, "; ")));
  caption.push_back(
      measured_sentence(question.phase, question.parameters.chunk, question.n_tokens));
  if (question.options.along == RecallAlong::budget) {
    caption.push_back(
        "The budget counts what a method selects; the running chunk, sinks and the like come on "
        "top where a method keeps them by rule: compare the keys kept.");
  }
  if (question.parameters.dense_layers > 0) {
    caption.push_back(
        fmt::format("The first {} layers stay dense.", question.parameters.dense_layers));
  }
  if (has_share && question.options.along == RecallAlong::budget) {
    caption.push_back(
        "Methods that take a share p of the attention are one point, at the mean number of keys "
        "they keep.");
  }
  return caption;
}

/// The ticked methods without a curve.
std::vector<std::string> left_out_notes(const RecallQuestion& question) {
  std::vector<std::string> left_out;
  for (const MethodItem& method : question.methods) {
    if (!method.obstacle.empty()) left_out.push_back(method.name);
  }
  if (left_out.empty()) return {};
  return {
      fmt::format("Not defined for this phase, hence not shown: {}.", fmt::join(left_out, ", "))};
}

}  // namespace

std::string RecallQuestion::key() const {
  std::string names;
  for (const MethodItem& method : methods) {
    names += fmt::format("{}={}{};", method.name, method.spec, method.obstacle.empty() ? "" : "!");
  }
  return fmt::format("recall/{}/{}/{}/{}/{}/{}", layer, q_head, enum_name(phase),
                     fields_to_json(parameters).dump(), fields_to_json(options).dump(), names);
}

std::vector<Index> budget_ladder(Index n_tokens) {
  std::vector<Index> ladder;
  const Index smallest = n_tokens >= 8 * kSmallestBudget ? kSmallestBudget : 1;
  for (Index budget = smallest; budget <= std::max<Index>(1, n_tokens); budget *= 2) {
    ladder.push_back(budget);
  }
  return ladder;
}

std::vector<RecallItem> plan_recall(const RecallQuestion& question) {
  std::vector<std::size_t> order;
  std::set<std::string> seen;
  for (std::size_t m = 0; m < question.methods.size(); ++m) {
    const MethodItem& method = question.methods[m];
    if (method.obstacle.empty() && seen.insert(method.spec.text()).second) order.push_back(m);
  }
  std::stable_partition(order.begin(), order.end(), [&](std::size_t m) {
    return !question.methods[m].name.starts_with("oracle");
  });
  const std::vector<Index> ladder = budget_ladder(question.n_tokens);
  const Index current = question.parameters.budget;
  const bool is_between = std::ranges::find(ladder, current) == ladder.end();

  std::vector<RecallItem> items;
  std::vector<RecallItem> at_current;
  for (std::size_t m : order) {
    const MethodItem& method = question.methods[m];
    MethodRowsRequest request{.layers = layers_of(question),
                              .phase = question.phase,
                              .chunk = question.parameters.chunk,
                              .spec = method.spec,
                              .dense_layers = question.parameters.dense_layers,
                              .rows_per_chunk = display_rows_per_chunk(question.n_tokens)};
    const auto budget = budget_of(method.spec, question.parameters);
    const auto add = [&](std::vector<Budget> budgets, std::vector<RecallItem>& to) {
      request.budgets = std::move(budgets);
      for (MethodRowsRequest& part : split_by_layer(request)) to.push_back({m, std::move(part)});
    };
    if (!takes_tokens(budget)) {
      add(budget ? std::vector<Budget>{*budget} : std::vector<Budget>{}, items);
      continue;
    }
    std::vector<Budget> steps;
    for (Index tokens : ladder) {
      steps.push_back({Budget::Kind::tokens, static_cast<double>(tokens)});
    }
    add(std::move(steps), items);
    if (is_between) add({*budget}, at_current);
  }
  for (RecallItem& item : at_current) {
    item.is_ladder = false;
    items.push_back(std::move(item));
  }
  return items;
}

std::size_t RecallPicture::bytes() const {
  return sizeof *this + numbers.size() * sizeof(RecallNumbers) + 2 * figure_bytes(figure);
}

RecallPicture recall_picture(const RecallQuestion& question, const std::vector<RecallItem>& items,
                             const std::vector<std::shared_ptr<const MethodRows>>& rows,
                             const std::vector<OpenedSweep>& opened) {
  RecallPicture picture;
  picture.along = question.options.along;
  const figures::Along along = sweep_axis(question.options.along);
  const Covered covered = covered_by(question, items, rows);
  const Collected collected = collect(question, items, rows, covered);
  picture.unfinished = covered.unfinished;
  if (collected.rows.empty()) {
    picture.sentence = items.empty() ? why_nothing(question, collected) : picture.unfinished;
    return picture;
  }
  const Table table = table_of(collected.rows, question.trace);
  const FigureOptions options = recall_figure_options(question);
  std::vector<std::string> specs;
  for (const MethodItem& method : question.methods) specs.push_back(method.spec.text());
  figures::SweepSelection selection;
  try {
    picture.figure = figures::sweep_curves(table, options, along, options.metric, specs);
    selection = figures::select_sweep_rows(
        table, options, figures::DenseLayers::leave_out_for_all,
        along == figures::Along::budget ? figures::BudgetKinds::usual : figures::BudgetKinds::all);
    picture.of = means_over(question, table, selection);
    picture.numbers = numbers_at_budget(question, table, selection, collected.is_current);
  } catch (const ConfigError&) {  // the selection is empty
    picture.figure = {};
    picture.sentence = why_nothing(question, collected);
    return picture;
  }
  picture.figure.name = "budget";
  plot::Panel& panel = picture.figure.panels.front();
  picture.mark_methods = relabel(panel, question);
  note_budgets(picture, question, table);
  note_targets(picture, question, table, selection, collected.is_current);
  set_axes(panel, question);
  if (metric_is_share(question.options.metric) && question.options.target > 0.0) {
    panel.marks.emplace_back(plot::Rule{
        plot::Rule::Kind::horizontal, question.options.target, "target", {plot::Role::neutral, 0}});
    picture.mark_methods.emplace_back();
  }
  std::vector<std::string> caption = caption_of(question, picture);
  for (std::string& sentence : picture.figure.caption) {
    if (!sentence.starts_with("Phase: ")) caption.push_back(std::move(sentence));
  }
  picture.figure.caption = std::move(caption);
  picture.notes = left_out_notes(question);
  if (question.options.opened) add_opened(picture, question, opened);
  return picture;
}

std::vector<plot::Tone> recall_tones(const std::vector<MethodItem>& methods) {
  std::vector<std::string> specs;
  for (const MethodItem& method : methods) specs.push_back(method.spec.text());
  const figures::MethodTones tones(specs);
  std::vector<plot::Tone> out;
  for (const std::string& spec : specs) out.push_back(tones.of(spec));
  return out;
}

}  // namespace kvscope::gui
