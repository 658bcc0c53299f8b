// Retrieval accuracy over prompt length and depth of the fact: the needle grids of QuoKA's figures
// 4 and 7.
//
// Columns of the table: selector, budget, length (tokens), depth (0 to 1), accuracy (0 to 1); rows
// that agree in all of these are averaged; kind, protocol, prompts and budget_kind are named where
// they are there. A simulation's grids do as well.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "analysis/base/statistics.hpp"
#include "analysis/figures/beyond_oracle.hpp"
#include "analysis/figures/maps.hpp"
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

/// One measured prompt, or the mean of several.
struct Answer {
  std::string selector;
  std::string budget;  // as shown: "256", "25%", "$p$ = 0.9"; empty: the method takes none
  double budget_value = std::numeric_limits<double>::quiet_NaN();
  double length = 0.0;
  double depth = 0.0;
  double accuracy = 0.0;
  double kept = std::numeric_limits<double>::quiet_NaN();  // keys per query, measured
};

/// What a grid shows besides its axes.
struct Answers {
  std::vector<Answer> list;
  std::string kind;                 // of prompts; empty: the result does not say
  std::vector<std::string> others;  // kinds that the result has as well
  std::string protocol;             // where the selector answers; empty: the result does not say
  double prompts_low = std::numeric_limits<double>::quiet_NaN();  // per cell
  double prompts_high = std::numeric_limits<double>::quiet_NaN();
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

/// grid/KIND [pair, length, depth]; the table's first rows are the pairs in their order.
template <class AnswerOf>
void add_grid(const ResultView& result, const std::string& grid_name, const Table& table,
              const AnswerOf& answer_of, Answers& answers) {
  const figures::ArrayData grid(result, grid_name);
  const auto lengths = result.read("grid/length");
  const auto depths = result.read("grid/depth");
  for (Index p = 0; p < grid.spec.shape[0]; ++p) {
    const std::size_t row =
        static_cast<std::size_t>(p) * (table.has("depth") ? depths.size() : std::size_t{1});
    if (row >= table.n_rows() || lengths.size() != static_cast<std::size_t>(grid.spec.shape[1]) ||
        depths.size() != static_cast<std::size_t>(grid.spec.shape[2])) {
      throw FormatError("{}: {} does not fit its axes or the table", result.name(), grid_name);
    }
    for (Index l = 0; l < grid.spec.shape[1]; ++l) {
      for (Index d = 0; d < grid.spec.shape[2]; ++d) {
        Answer answer = answer_of(row);
        answer.length = lengths[static_cast<std::size_t>(l)];
        answer.depth = depths[static_cast<std::size_t>(d)];
        answer.accuracy = grid(p, l, d);
        answers.list.push_back(std::move(answer));
      }
    }
  }
  if (!table.has("prompts")) return;
  // of a row: of one depth, or of all
  const double n = table.has("depth") ? 1.0 : static_cast<double>(depths.size());
  answers.prompts_low = answers.prompts_high = table.numbers("prompts")[0] / n;
}

Answers read_answers(const ResultView& result, const std::string& asked) {
  const Table table = rows_of(result);
  const TextColumn& selectors = table.text("selector");
  Answers answers;
  choose_kind(table, asked, answers);
  answers.protocol = table.has_text("protocol") ? table.text("protocol").at(0)
                                                : text_at(result.info().config, "protocol");
  const auto answer_of = [&](std::size_t r) {
    Answer answer{.selector = selectors.at(r)};
    if (table.has("kept")) answer.kept = table.numbers("kept")[r];
    if (!table.has("budget")) return answer;
    answer.budget_value = table.numbers("budget")[r];
    answer.budget = figures::budget_label(table, r);
    return answer;
  };
  const std::string grid_name = "grid/" + answers.kind;
  const ResultArray* array = answers.kind.empty() ? nullptr : result.find(grid_name);
  if (array != nullptr && array->shape.rank == 3) {
    add_grid(result, grid_name, table, answer_of, answers);
    return answers;
  }
  const auto length = table.numbers("length");
  const auto depth = table.numbers("depth");
  const auto accuracy = table.numbers("accuracy");
  std::map<std::tuple<std::string, std::string, double, double>, double> prompts;
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    if (!answers.kind.empty() && table.text("kind").at(r) != answers.kind) continue;
    // of several protocols and turns the first is shown, as in the grids
    if (table.has_text("protocol") && table.text("protocol").at(r) != answers.protocol) continue;
    if (table.has("turn") && table.numbers("turn")[r] > 1.0) continue;
    Answer answer = answer_of(r);
    answer.length = length[r];
    answer.depth = depth[r];
    if (answer.depth < 0.0 || answer.depth > 1.0) {
      throw ConfigError(
          "{}: column depth: expected the fact's place as a share of the prompt, "
          "from 0 to 1 (0.5 is the middle), found {}",
          table.name(), answer.depth);
    }
    answer.accuracy = accuracy[r];
    if (table.has("prompts")) {
      prompts[{answer.selector, answer.budget, answer.length, answer.depth}] +=
          table.numbers("prompts")[r];
    }
    answers.list.push_back(std::move(answer));
  }
  for (const auto& [cell, n] : prompts) {
    answers.prompts_low = std::fmin(answers.prompts_low, n);
    answers.prompts_high = std::fmax(answers.prompts_high, n);
  }
  return answers;
}

/// "2 prompts", "1 to 2 prompts"; empty if the result does not say.
std::string prompts_text(const Answers& answers) {
  if (std::isnan(answers.prompts_low)) return "";
  if (answers.prompts_low != answers.prompts_high)
    return fmt::format("{:g} to {:g} prompts", answers.prompts_low, answers.prompts_high);
  return fmt::format("{:g} prompt{}", answers.prompts_low, answers.prompts_low == 1.0 ? "" : "s");
}

/// " [80, 98]": Wilson's 95 % interval of the mean of all cells, where the prompts are known and
/// each was answered or not.
std::string interval_text(const Answers& answers, double sum, int n_cells) {
  const double per_cell = answers.prompts_low;
  if (std::isnan(per_cell) || per_cell != answers.prompts_high || n_cells < 1) return "";
  const double hits = sum * per_cell;
  if (std::abs(hits - std::round(hits)) > 1e-6) return "";
  const Interval interval = wilson_interval(std::round(hits), per_cell * n_cells);
  return fmt::format(" [{:.0f}, {:.0f}]", 100.0 * interval.low, 100.0 * interval.high);
}

std::vector<std::string> caption_of(const Answers& answers) {
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
  const std::string prompts = prompts_text(answers);
  caption.push_back(prompts.empty() ? std::string("The result does not say how many prompts a cell "
                                                  "stands for.")
                                    : fmt::format("Each cell: {}.", prompts));
  return caption;
}

/// By depth and length.
using NeedleGrid = std::map<std::pair<double, double>, Mean>;

/// The map of one method; `mean` becomes the mean of its cells. Its colours are the caller's.
plot::Panel needle_panel(const std::string& name, NeedleGrid& grid, const Answers& answers,
                         const std::vector<double>& lengths, const std::vector<double>& depths,
                         double& mean) {
  std::vector<float> cells;
  double sum_all = 0.0;
  int n_all = 0;
  for (const double d : depths) {
    for (const double l : lengths) {
      const double value = grid[{d, l}].value();
      cells.push_back(static_cast<float>(value));
      if (std::isnan(value)) continue;
      sum_all += value;
      ++n_all;
    }
  }
  mean = sum_all / std::max(1, n_all);
  const std::string title =
      fmt::format("{}\nmean {:.0f}%{}{}", name, 100.0 * mean,
                  static_cast<std::size_t>(n_all) == cells.size()
                      ? std::string()
                      : fmt::format(" over {} of {} cells", n_all, cells.size()),
                  interval_text(answers, sum_all, n_all));
  std::vector<plot::Tick> percent_ticks = figures::cell_ticks(depths);
  for (std::size_t d = 0; d < depths.size(); ++d)
    percent_ticks[d].label = fmt::format("{:.0f}%", 100.0 * depths[d]);
  plot::HeatMap map = figures::unit_cells(depths.size(), lengths.size(), std::move(cells));
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
  const figures::Wanted wanted(input.options.selector);
  std::set<double> lengths;
  std::set<double> depths;
  std::vector<std::string> names;  // in the order of the table
  std::map<std::string, NeedleGrid> grids;
  std::vector<figures::LiveResult> means;  // of each name
  const Answers answers = read_answers(*input.results[0], input.options.metric);
  for (const Answer& answer : answers.list) {
    if (!wanted.has(answer.selector) || std::isnan(answer.accuracy)) continue;
    std::string name = figures::method_label(answer.selector);
    if (!answer.budget.empty()) {
      const bool other = !input.options.budget.empty() &&
                         fmt::format("{}", answer.budget_value) != input.options.budget;
      if (other) continue;
      name += ", " + answer.budget;
    }
    if (!grids.contains(name)) {
      names.push_back(name);
      means.push_back({answer.selector, answer.budget, 0.0, answer.kept});
    }
    grids[name][{answer.depth, answer.length}].add(answer.accuracy);
    lengths.insert(answer.length);
    depths.insert(answer.depth);
  }
  if (names.empty())
    figures::fail_empty(input.results[0]->name(), "no row with an accuracy is left");
  const std::vector<double> length_list(lengths.begin(), lengths.end());
  const std::vector<double> depth_list(depths.begin(), depths.end());
  plot::Figure figure =
      figures::panels_in_rows(names.size(), figures::balanced_columns(names.size()));
  figure.share_x = figure.share_y = true;
  const std::string prompts = prompts_text(answers);
  const std::string colour_label = fmt::format(
      "Accuracy{}{}{}{}", answers.kind.empty() && prompts.empty() ? "" : "\n",
      plot::verbatim(answers.kind), prompts.empty() || answers.kind.empty() ? "" : ", ", prompts);
  for (std::size_t i = 0; i < names.size(); ++i) {
    plot::Panel panel =
        needle_panel(names[i], grids[names[i]], answers, length_list, depth_list, means[i].value);
    panel.colour =
        plot::ColourAxis{.axis = {.label = colour_label,
                                  .range = plot::Range{0.0, 1.0},
                                  .format = plot::TickFormat::percent},
                         .show_bar = (i + 1) % static_cast<std::size_t>(figure.columns) == 0,
                         .masked_label = "not measured"};
    figure.panels.push_back(std::move(panel));
  }
  figure.caption = caption_of(answers);
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
