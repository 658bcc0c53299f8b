// Retrieval accuracy over prompt length and depth of the fact: the needle grids of QuoKA's figures
// 4 and 7.
//
// Columns of the table: selector, budget, length (tokens), depth (0 to 1), accuracy (0 to 1); rows
// that agree in all of these are averaged; kind, protocol, prompts and budget_kind are named where
// they are there. A simulation's grids do as well.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "analysis/base/mapped.hpp"
#include "analysis/figures/beyond_oracle.hpp"
#include "analysis/figures/maps.hpp"
#include "analysis/figures/method_rows.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "analysis/plot/rich_text.hpp"
#include "analysis/simulate/intervals.hpp"
#include "analysis/simulate/protocol.hpp"
#include "core/base/error.hpp"
#include "core/base/escape.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/nan.hpp"
#include "core/trace/result.hpp"

namespace kvscope {

namespace {

using Cells = std::vector<figures::RowMean>;  // [depth][length]

/// What is shown, and what it is of.
struct Answers {
  Table rows;                       // selector, length, depth, accuracy; budget, budget_kind, kept
  std::string kind = "";            // of prompts; empty: the result does not say
  std::vector<std::string> others;  // kinds that the result has as well
  std::string protocol = "";        // where the selector answers; empty: the result does not say
  std::vector<std::string> left_out;  // sentences
};

/// The kind that was asked for, else the first of the table that the dense model answers.
void choose_kind(const Table& table, const std::string& asked, Answers& answers) {
  if (!table.has_text("kind")) {
    if (!asked.empty()) {
      throw ConfigError("metric: {} does not name the kinds of its prompts, found {}", table.name(),
                        quote(asked));
    }
    return;
  }
  const TextColumn& kinds = table.text("kind");
  if (!asked.empty()) {
    answers.kind = asked;
    if (std::ranges::find(kinds.categories, asked) == kinds.categories.end()) {
      throw ConfigError("metric: there is no kind {} of prompts in {}; it has {}", quote(asked),
                        table.name(), some_of(kinds.categories));
    }
  } else {
    for (std::size_t r = 0; r < table.n_rows() && answers.kind.empty(); ++r) {
      if (!table.has_text("dense_solves") || table.text("dense_solves").at(r) == "yes")
        answers.kind = kinds.at(r);
    }
    if (answers.kind.empty()) answers.kind = kinds.at(0);
  }
  for (const std::string& kind : kinds.categories) {
    if (kind != answers.kind) answers.others.push_back(kind);
  }
}

/// Rows of the kind; of several protocols and turns those of the first, as in the grids.
std::vector<std::size_t> rows_shown(const Table& table, Answers& answers) {
  std::vector<std::size_t> rows;
  bool has_others = false;
  bool has_turns = false;
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    if (!answers.kind.empty() && table.text("kind").at(r) != answers.kind) continue;
    const bool is_other =
        table.has_text("protocol") && table.text("protocol").at(r) != answers.protocol;
    const bool is_later = table.has("turn") && table.numbers("turn")[r] > 1.0;
    has_others = has_others || is_other;
    has_turns = has_turns || is_later;
    if (!is_other && !is_later) rows.push_back(r);
  }
  if (has_others) answers.left_out.emplace_back("Of several protocols the first is shown.");
  if (has_turns) answers.left_out.emplace_back("Of several turns the first is shown.");
  return rows;
}

/// grid/KIND [pair, length, depth] as rows, with the prompts of a cell: a row of the table is of
/// all depths at a length, or of one.
Table rows_of_grid(const ResultView& result, const std::string& grid, const Table& table,
                   const std::vector<std::size_t>& shown) {
  const auto n_depths = result.read("grid/depth").size();
  const bool is_of_one = table.has("depth");
  Table rows = figures::rows_of_array(result, grid, "accuracy",
                                      {{"length", "grid/length"}, {"depth", "grid/depth"}}, table,
                                      is_of_one ? n_depths : std::size_t{1});
  if (!table.has("prompts")) return rows;
  const auto place_of = [](const Table& of, std::size_t r) {
    return std::tuple(of.text("selector").at(r), figures::budget_label(of, r),
                      of.numbers("length")[r]);
  };
  std::map<decltype(place_of(rows, 0)), double> prompts;  // of all depths
  for (const std::size_t r : shown) prompts[place_of(table, r)] += table.numbers("prompts")[r];
  std::vector<double> of_cells;
  for (std::size_t r = 0; r < rows.n_rows(); ++r)
    of_cells.push_back(prompts[place_of(rows, r)] / static_cast<double>(n_depths));
  rows.add_numbers("prompts", std::move(of_cells));
  return rows;
}

Answers read_answers(const ResultView& result, const std::string& asked) {
  const Table table = rows_of(result);
  Answers answers{.rows = table};
  choose_kind(table, asked, answers);
  answers.protocol = table.has_text("protocol") ? table.text("protocol").at(0)
                                                : text_at(result.info().config, "protocol");
  const std::vector<std::size_t> shown = rows_shown(table, answers);
  const std::string grid = "grid/" + answers.kind;
  const ResultArray* array = answers.kind.empty() ? nullptr : result.find(grid);
  if (array != nullptr && array->shape.rank == 3) {
    answers.rows = rows_of_grid(result, grid, table, shown);
    return answers;
  }
  answers.rows = figures::rows_in(table, shown);
  for (const double depth : answers.rows.numbers("depth")) {
    if (depth < 0.0 || depth > 1.0)
      throw ConfigError(
          "{}: column depth: expected the fact's place as a share of the prompt, "
          "from 0 to 1 (0.5 is the middle), found {}",
          table.name(), depth);
  }
  return answers;
}

/// "2 prompts", "1 to 2 prompts" of the cells; empty if the result does not say.
std::string prompts_text(bool knows_prompts, const std::vector<Cells>& methods) {
  if (!knows_prompts) return "";
  std::set<double> counts;
  for (const Cells& cells : methods)
    for (const figures::RowMean& cell : cells)
      if (!cell.rows.empty()) counts.insert(cell.weight);
  if (counts.size() > 1)
    return fmt::format("{:.3g} to {:.3g} prompts", *counts.begin(), *counts.rbegin());
  return fmt::format("{:.3g} prompt{}", *counts.begin(), *counts.begin() == 1.0 ? "" : "s");
}

/// " [80, 98]": Wilson's 95 % interval over all cells, where the prompts are known and each was
/// answered or not.
std::string interval_text(bool knows_prompts, double hits, double n_prompts) {
  const bool are_whole = std::abs(hits - std::round(hits)) < 1e-6;
  if (!knows_prompts || !are_whole || !(n_prompts > 0.0)) return "";
  const Interval interval = wilson_interval(std::round(hits), n_prompts);
  return fmt::format(" [{:.0f},\u00a0{:.0f}]", 100.0 * interval.low, 100.0 * interval.high);
}

std::vector<std::string> caption_of(const Answers& answers, const std::string& prompts) {
  std::vector<std::string> caption = {
      "Exact-match accuracy by prompt length and depth of the hidden fact."};
  if (!answers.kind.empty()) {
    caption.push_back(fmt::format("Kind of prompt: {}.", plot::verbatim(answers.kind)));
    if (!answers.others.empty()) {
      caption.push_back(
          fmt::format("The result has {} as well, which --metric shows.",
                      plot::verbatim(fmt::format("{}", fmt::join(answers.others, ", ")))));
    }
  }
  const auto& entries = protocol_entries();
  const auto named = std::ranges::find_if(
      entries, [&](const ProtocolEntry& entry) { return entry.protocol.name == answers.protocol; });
  const std::string_view words =
      answers.protocol == "decode"    ? "the end of the prompt and the answer run under the method"
      : answers.protocol == "prefill" ? "the prompt runs under the method, the answer is dense"
      : answers.protocol == "all"     ? "prompt and answer run under the method"
      : named != entries.end()        ? named->meaning
                                      : "";
  if (!answers.protocol.empty()) {
    caption.push_back(fmt::format("Protocol {}{}{}.", plot::verbatim(answers.protocol),
                                  words.empty() ? "" : ": ", words));
  } else {
    caption.emplace_back("The result does not say under which protocol.");
  }
  caption.insert(caption.end(), answers.left_out.begin(), answers.left_out.end());
  caption.push_back(prompts.empty() ? std::string("The result does not say how many prompts a cell "
                                                  "stands for.")
                                    : fmt::format("Each cell: {}.", prompts));
  return caption;
}

/// The map of one method; `mean` becomes that of all its prompts. Its colours are the caller's.
plot::Panel needle_panel(const std::string& name, const Cells& cells, bool knows_prompts,
                         const std::vector<double>& lengths, const std::vector<double>& depths,
                         double& mean) {
  std::vector<float> values;
  double hits = 0.0;
  double n_prompts = 0.0;
  std::size_t n_measured = 0;
  for (const figures::RowMean& cell : cells) {
    values.push_back(static_cast<float>(cell.value()));
    hits += cell.sum;
    n_prompts += cell.weight;
    n_measured += cell.rows.empty() ? 0 : 1;
  }
  mean = hits / n_prompts;
  const std::string title = fmt::format(
      "{}\nmean {:.0f}%{}{}", name, 100.0 * mean,
      n_measured == cells.size() ? std::string()
                                 : fmt::format(" over {} of {} cells", n_measured, cells.size()),
      interval_text(knows_prompts, hits, n_prompts));
  std::vector<plot::Tick> percent_ticks = figures::cell_ticks(depths);
  for (std::size_t d = 0; d < depths.size(); ++d)
    percent_ticks[d].label = fmt::format("{:.0f}%", 100.0 * depths[d]);
  plot::HeatMap map = figures::unit_cells(depths.size(), lengths.size(), std::move(values));
  map.print_values = true;
  return {.title = title,
          .x = {.label = "Prompt length (tokens)",
                .ticks = figures::cell_ticks(lengths, plot::TickFormat::tokens)},
          .y = {.label = "Depth of the fact",
                .ticks = std::move(percent_ticks),
                .has_names = true,
                .reversed = true},
          .marks = {std::move(map)},
          .aspect = 0.7};
}

plot::Figure make_needle(const FigureInput& input) {
  const Answers answers = read_answers(*input.results[0], input.options.metric);
  const Table& table = answers.rows;
  figures::RowNumbers accuracy = figures::numbers_with_ends(table, "accuracy");
  const std::vector<double> prompts_of = figures::numbers_with_ends(table, "prompts").values;
  bool has_budget = false;
  const auto is_shown = [&](std::size_t r) {
    const bool has_own = !input.options.budget.empty() && !figures::budget_label(table, r).empty();
    const bool is_of_other =
        has_own && fmt::format("{}", table.numbers("budget")[r]) != input.options.budget;
    has_budget = has_budget || (has_own && !is_of_other);
    return !std::isnan(accuracy.values[r]) && !is_of_other;
  };
  auto methods =
      figures::method_rows(table, input.options, figures::BudgetInLabel::always, is_shown);
  if (!input.options.budget.empty() && !has_budget)
    throw ConfigError("budget: there is no {} in {}", input.options.budget, table.name());
  if (methods.empty()) figures::fail_empty(table.name(), "no row with an accuracy is left");
  if (std::ranges::all_of(methods, [&](const figures::MethodRows& method) {
        return std::ranges::all_of(method.rows, [&](std::size_t r) { return prompts_of[r] > 0.0; });
      }))
    accuracy.weights = prompts_of;
  const auto length = table.numbers("length");
  const auto depth = table.numbers("depth");
  const std::vector<double> lengths = figures::values_of(methods, length);
  const std::vector<double> depths = figures::values_of(methods, depth);
  std::vector<double> cell_of;  // rows by length and depth
  for (std::size_t r = 0; r < table.n_rows(); ++r) cell_of.push_back(2.0 * length[r] + depth[r]);
  std::vector<std::string> lacking;
  methods = figures::at_common_places(table, methods, cell_of, accuracy, lacking);
  const auto cells = mapped<Cells>(methods, [&](const figures::MethodRows& method) {
    return figures::cells_of(method, length, depth, accuracy, lengths, depths);
  });
  plot::Figure figure =
      figures::panels_in_rows(methods.size(), figures::balanced_columns(methods.size()));
  figure.share_x = figure.share_y = true;
  const std::string prompts = prompts_text(!accuracy.weights.empty(), cells);
  const std::string colour_label = fmt::format(
      "Accuracy{}{}{}{}", answers.kind.empty() && prompts.empty() ? "" : "\n",
      plot::verbatim(answers.kind), prompts.empty() || answers.kind.empty() ? "" : ", ", prompts);
  std::vector<figures::LiveResult> means;
  figure.caption = caption_of(answers, prompts);
  figure.caption.insert(figure.caption.end(), lacking.begin(), lacking.end());
  figures::say_match(table, methods, figure.caption);
  for (std::size_t i = 0; i < methods.size(); ++i) {
    const std::size_t first = methods[i].rows.front();
    means.push_back({methods[i].selector, figures::budget_label(table, first), 0.0,
                     table.has("kept") ? table.numbers("kept")[first] : kNan});
    plot::Panel panel = needle_panel(methods[i].label, cells[i], !accuracy.weights.empty(), lengths,
                                     depths, means.back().value);
    panel.colour =
        plot::ColourAxis{.axis = {.label = colour_label,
                                  .range = plot::Range{0.0, 1.0},
                                  .format = plot::TickFormat::percent},
                         .show_bar = (i + 1) % static_cast<std::size_t>(figure.columns) == 0,
                         .masked_label = "not measured"};
    figure.panels.push_back(std::move(panel));
    figures::say_means(table, mapped<std::vector<std::size_t>>(cells[i], &figures::RowMean::rows),
                       figure.caption);
  }
  if (std::ranges::any_of(figure.panels, [](const plot::Panel& panel) {
        return panel.title.find('[') != panel.title.npos;
      }))
    figure.caption.emplace_back("In brackets: the 95% interval of the mean (Wilson).");
  figures::say_beyond_oracles(means, /*is_better_low=*/false, figure.caption);
  return figure;
}

}  // namespace

FigureKind figure_needle() {
  return {
      .name = "needle",
      .shows =
          "retrieval accuracy over prompt length and depth of the fact (QuoKA, figures 4 and 7)",
      .needs =
          "a retrieval simulation, or a table with selector, length, depth and accuracy "
          "(budget optional); --metric names the kind of prompt",
      .command = "kvscope simulate retrieval --selector quoka --budget 256 --out needle.h5",
      .kinds = {"simulate-retrieval|table"},
      .options = {"metric", "selector", "budget"},
      .make = make_needle,
  };
}

}  // namespace kvscope
