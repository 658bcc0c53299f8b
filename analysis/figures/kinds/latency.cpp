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
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "analysis/plot/rich_text.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"
#include "core/trace/result.hpp"

namespace kvscope {

namespace {

/// A column of times or ratios, with its band where the table has one.
struct Series {
  Series(const Table& table, const std::string& column) : values(table.numbers(column)) {
    if (!table.has(column + "_low") || !table.has(column + "_high")) return;
    low = table.numbers(column + "_low");
    high = table.numbers(column + "_high");
  }
  std::span<const double> values;
  std::span<const double> low;  // empty: no band
  std::span<const double> high;
};

enum class TimedRole { method, reference, control };

/// Rows of one method and budget, by length.
struct Method {
  std::string key;
  std::string label;
  TimedRole role = TimedRole::method;
  std::map<double, std::size_t> rows;
};

std::vector<Method> methods_of(const Table& table, const figures::Wanted& wanted) {
  const TextColumn& selectors = table.text("selector");
  const auto length = table.numbers("length");
  const auto seconds = table.numbers("seconds");
  const TextColumn* names = table.has_text("method") ? &table.text("method") : nullptr;
  const bool names_reference =
      names != nullptr && std::ranges::find(names->categories, "dense") != names->categories.end();
  std::vector<Method> methods;
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    const std::string& selector = selectors.at(r);
    const bool is_reference = selector == "full" && (!names_reference || names->at(r) == "dense");
    if (!(is_reference || wanted.has(selector)) || !std::isfinite(seconds[r])) continue;
    const std::string key =
        is_reference ? "dense" : selector + ":" + figures::budget_label(table, r);
    auto at =
        std::ranges::find_if(methods, [&](const Method& method) { return method.key == key; });
    if (at == methods.end()) {
      const bool is_control = selector == "full" && !is_reference;
      methods.push_back({key,
                         is_reference ? "dense"
                         : is_control ? "full, as a method"
                                      : figures::method_at_budget(table, r),
                         is_reference ? TimedRole::reference
                         : is_control ? TimedRole::control
                                      : TimedRole::method,
                         {}});
      at = methods.end() - 1;
    }
    at->rows[length[r]] = r;
  }
  if (methods.empty()) figures::fail_empty(table.name(), "no row with seconds is left");
  return methods;
}

/// Numbers by length, a line per method.
struct TimedPanel {
  std::string label;
  std::function<double(double length, std::size_t row)> y;
  const Series* band = nullptr;  // null: without
  bool is_ratio = false;         // to the reference, which has no line; else milliseconds
};

plot::Line line_of(const Method& method, const figures::MethodTones& tones) {
  plot::Line line;
  line.label = method.label;
  line.markers = method.role != TimedRole::control;
  line.tone = method.role == TimedRole::method      ? tones.of(method.key)
              : method.role == TimedRole::reference ? plot::Tone{plot::Role::reference, 1}
                                                    : plot::Tone{plot::Role::neutral, 0};
  return line;
}

/// Adds a panel; false if there is nothing to show in it.
bool add_panel(plot::Figure& figure, const std::vector<Method>& methods, const TimedPanel& shown) {
  std::vector<std::string> keys;
  for (const Method& method : methods) {
    if (method.role == TimedRole::method) keys.push_back(method.key);
  }
  const figures::MethodTones tones(keys);
  const double unit = shown.is_ratio ? 1.0 : 1e3;
  plot::Panel panel{.x = figures::length_axis(), .y = {.label = shown.label}};
  if (!shown.is_ratio) panel.y.scale = plot::ScaleKind::log10;
  panel.aspect = 0.62;
  for (const Method& method : methods) {
    if (shown.is_ratio && method.role == TimedRole::reference) continue;
    plot::Line line = line_of(method, tones);
    bool is_known = false;
    for (const auto& [length, row] : method.rows) {
      const double y = shown.y(length, row);
      if (!shown.is_ratio && !(y > 0.0)) continue;
      is_known = is_known || !shown.is_ratio || std::isfinite(y);
      if (shown.band == nullptr || shown.band->low.empty())
        line.add(length, unit * y);
      else
        line.add(length, unit * y, {unit * shown.band->low[row], unit * shown.band->high[row]});
    }
    if (is_known) panel.marks.emplace_back(std::move(line));
  }
  if (panel.marks.empty()) return false;
  if (shown.is_ratio) panel.marks.emplace_back(plot::Rule{plot::Rule::Kind::horizontal, 1.0, ""});
  figure.panels.push_back(std::move(panel));
  return true;
}

/// A ratio of dense over sparse, as it stands in the table.
void add_recorded_ratio(plot::Figure& figure, const std::vector<Method>& methods,
                        const std::string& label, const Series& ratio) {
  add_panel(figure, methods,
            {label, [&](double, std::size_t row) { return ratio.values[row]; }, &ratio, true});
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
  const auto methods = methods_of(table, figures::Wanted(input.options.selector));
  const bool is_ttft = table.has("ttft_seconds");
  const bool has_attention = is_ttft && table.has("attention_seconds");
  const Series seconds(table, "seconds");
  plot::Figure out;
  const auto or_none = [](double x) { return std::isnan(x) ? 0.0 : x; };
  add_panel(out, methods,
            {is_ttft ? "Time to the first token (ms)" : "Time (ms)",
             [&](double, std::size_t row) { return or_none(seconds.values[row]); }, &seconds});
  if (has_attention) {
    const Series attention(table, "attention_seconds");
    const bool has_selection = table.has("selection_seconds");
    const Series selection(table, has_selection ? "selection_seconds" : "attention_seconds");
    add_panel(out, methods, {"Attention and selection (ms)", [&](double, std::size_t row) {
                               return or_none(attention.values[row]) +
                                      (has_selection ? or_none(selection.values[row]) : 0.0);
                             }});
  }
  bool has_ratio = table.has("ttft_ratio");
  const auto dense = std::ranges::find(methods, TimedRole::reference, &Method::role);
  if (has_ratio) {
    add_recorded_ratio(out, methods, "Speedup of the first token", Series(table, "ttft_ratio"));
    if (has_attention && table.has("attention_ratio"))
      add_recorded_ratio(out, methods, "Speedup of attention", Series(table, "attention_ratio"));
  } else if (dense != methods.end()) {
    const auto over_dense = [&](double length, std::size_t row) {
      const auto at = dense->rows.find(length);
      return at == dense->rows.end() ? kNan : seconds.values[at->second] / seconds.values[row];
    };
    has_ratio = add_panel(out, methods, {"Speedup over dense", over_dense, nullptr, true});
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
    out.caption.emplace_back("No speedups: the table has no rows of selector full.");
  } else if (table.has("ttft_ratio")) {
    out.caption.emplace_back(
        "Speedups: dense over sparse turn by turn, medians; above 1 is faster than dense.");
  } else {
    out.caption.emplace_back(
        "Speedups: seconds of selector full over those of the method; above 1 is faster.");
  }
  if (std::ranges::any_of(methods,
                          [](const Method& method) { return method.role == TimedRole::control; }))
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
