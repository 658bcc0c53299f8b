// Latency by context length, and how much faster than dense attention each method is.
//
// Columns of the table: selector, length (tokens), seconds; optional seconds_low and seconds_high
// (a band), budget, budget_kind. Speedups are against the rows of selector "full" at the same
// length. A report of bench live says more: seconds are those to the first token (ttft_seconds),
// attention and selection have columns of their own, and ratios were taken turn by turn. Its column
// `method` tells the dense reference from `full` run as a method, which does the same work through
// the methods' hooks: a control, whose distance from dense is what hooks and noise make.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <variant>
#include <vector>

#include "analysis/figures/method_rows.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "analysis/plot/rich_text.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"
#include "core/trace/result.hpp"

namespace kvscope {

namespace {

constexpr const char* kControl = "full, as a method";

using Methods = std::vector<figures::MethodRows>;

/// Rows of selector full that speedups are taken against.
std::vector<bool> reference_rows(const Table& table) {
  const TextColumn& selectors = table.text("selector");
  const TextColumn* names = table.has_text("method") ? &table.text("method") : nullptr;
  const bool names_reference =
      names != nullptr && std::ranges::find(names->categories, "dense") != names->categories.end();
  std::vector<bool> is_reference;
  for (std::size_t r = 0; r < table.n_rows(); ++r)
    is_reference.push_back(selectors.at(r) == "full" &&
                           (!names_reference || names->at(r) == "dense"));
  return is_reference;
}

/// Numbers by length, a line per method; false where there is none. `is_ratio`: to the reference;
/// else milliseconds.
bool add_panel(plot::Figure& figure, const Table& table, const Methods& methods,
               const std::string& label, const figures::RowNumbers& y, bool is_ratio) {
  plot::Panel panel{.x = figures::length_axis(), .y = {.label = label}, .aspect = 0.62};
  if (!is_ratio) panel.y.scale = plot::ScaleKind::log10;
  figures::add_lines(panel, table, methods, table.numbers("length"), is_ratio ? y : y.in(1e3),
                     figure.caption);
  if (panel.marks.empty()) return false;
  for (plot::Mark& mark : panel.marks)
    std::get<plot::Line>(mark).markers = std::get<plot::Line>(mark).label != kControl;
  if (is_ratio) panel.marks.emplace_back(plot::Rule{plot::Rule::Kind::horizontal, 1.0, ""});
  figure.panels.push_back(std::move(panel));
  return true;
}

/// Seconds of the reference at the same length (of the same model, batch, ...) over those of each
/// row.
figures::RowNumbers over_reference(const Table& table, const Methods& reference,
                                   const figures::RowNumbers& seconds) {
  figures::RowNumbers ratios{std::vector<double>(table.n_rows(), kNan)};
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    figures::RowMean dense;
    for (const figures::MethodRows& one : reference)
      for (const std::size_t row : one.rows)
        if (figures::is_same_place(table, r, row)) dense.add(seconds, row);
    ratios.values[r] = dense.value() / seconds.values[r];
  }
  return ratios;
}

/// "3 turns; chunks of 128; 2 threads on AMD EPYC." as far as the result says it.
std::string conditions_of(const ResultView& result, const Table& table) {
  const auto& config = result.info().config;
  std::vector<std::string> parts;
  double turns = number_at(config, "repeat");
  if (std::isnan(turns) && table.has("repeat")) turns = table.numbers("repeat")[0];
  if (!std::isnan(turns))
    parts.push_back(fmt::format("n = {:g} turn{}", turns, turns == 1.0 ? "" : "s"));
  if (const double chunk = number_at(config, "chunk"); !std::isnan(chunk))
    parts.push_back(fmt::format("chunks of {:g} tokens", chunk));
  if (const double threads = number_at(config, "threads"); !std::isnan(threads)) {
    const std::string cpu = text_at(config, "cpu");
    parts.push_back(fmt::format("{:g} thread{}{}", threads, threads == 1.0 ? "" : "s",
                                cpu.empty() ? "" : " on " + plot::verbatim(cpu)));
  }
  return parts.empty() ? "" : fmt::format("Measured: {}.", fmt::join(parts, "; "));
}

plot::Figure make_latency(const FigureInput& input) {
  const Table table = rows_of(*input.results[0]);
  const figures::RowNumbers seconds = figures::numbers_with_ends(table, "seconds");
  table.numbers("seconds");  // says which columns there are
  const std::vector<bool> is_reference = reference_rows(table);
  const auto rows = [&](const FigureOptions& options, bool are_of_reference) {
    return figures::method_rows(table, options, figures::BudgetInLabel::always, [&](std::size_t r) {
      return is_reference[r] == are_of_reference && std::isfinite(seconds.values[r]);
    });
  };
  const Methods reference = rows({}, true);
  Methods methods = rows(input.options, false);
  Methods all = reference;
  const std::size_t n_name = figures::method_label("full").size();
  for (figures::MethodRows& one : all) one.label = "dense" + one.label.substr(n_name);
  bool has_control = false;
  for (figures::MethodRows& one : methods) {
    if (one.selector != "full") continue;
    has_control = true;
    one.label = kControl;
    one.tone = {plot::Role::neutral, 0};
  }
  all.insert(all.end(), methods.begin(), methods.end());
  if (all.empty()) figures::fail_empty(table.name(), "no row with seconds is left");
  const bool is_ttft = table.has("ttft_seconds");
  const bool has_attention = is_ttft && table.has("attention_seconds");
  plot::Figure out;
  add_panel(out, table, all, is_ttft ? "Time to the first token (ms)" : "Time (ms)", seconds,
            false);
  if (has_attention) {
    figures::RowNumbers sum{figures::numbers_with_ends(table, "attention_seconds").values};
    const auto selection = figures::numbers_with_ends(table, "selection_seconds").values;
    for (std::size_t r = 0; r < selection.size(); ++r)
      sum.values[r] += std::isnan(selection[r]) ? 0.0 : selection[r];
    add_panel(out, table, all, "Attention and selection (ms)", sum, false);
  }
  bool has_ratio = false;
  if (table.has("ttft_ratio")) {
    has_ratio = add_panel(out, table, methods, "Speedup of the first token",
                          figures::numbers_with_ends(table, "ttft_ratio"), true);
    if (has_attention && table.has("attention_ratio"))
      add_panel(out, table, methods, "Speedup of attention",
                figures::numbers_with_ends(table, "attention_ratio"), true);
  } else {
    has_ratio = add_panel(out, table, methods, "Speedup over dense",
                          over_reference(table, reference, seconds), true);
  }
  figures::set_in_rows(out, out.panels.size(), 2);
  out.caption.emplace_back(
      is_ttft ? "Time from the start of the prompt's prefill to the logits of the first token, "
                "median over turns."
              : "Times: column seconds of the table; what they are of, the table does not say.");
  if (has_attention)
    out.caption.emplace_back(
        "Attention: from queries, keys and values to the heads' outputs, all layers and chunks of "
        "the prompt, and what the method needs to choose.");
  if (!has_ratio) {
    out.caption.emplace_back(
        "No speedups: no row of a method has one of selector full at its place.");
  } else if (table.has("ttft_ratio")) {
    out.caption.emplace_back(
        "Speedups: dense over sparse turn by turn, medians; above 1 is faster than dense.");
  } else {
    out.caption.emplace_back(
        "Speedups: seconds of selector full over those of the method; above 1 is faster.");
  }
  if (has_control)
    out.caption.emplace_back(
        "full, as a method: dense attention through the methods' hooks; its distance from dense is "
        "what the hooks and the noise of this machine make.");
  if (!seconds.low.empty())
    out.caption.emplace_back(is_ttft ? "Bands: fastest to slowest turn."
                                     : "Bands: seconds_low to seconds_high of the table.");
  const std::string conditions = conditions_of(*input.results[0], table);
  if (!conditions.empty()) out.caption.push_back(conditions);
  return out;
}

}  // namespace

FigureKind figure_latency() {
  return {
      .name = "latency",
      .shows =
          "time to the first token and time of attention by context length, and speedups over "
          "dense attention",
      .needs =
          "a table with selector, length and seconds (seconds_low, seconds_high, budget optional)",
      .command =
          "kvscope bench live --selector quoka --json > live.json, or a CSV of measured or "
          "predicted times",
      .kinds = {"table|latency|simulate-latency"},
      .options = {"selector"},
      .make = make_latency,
  };
}

}  // namespace kvscope
