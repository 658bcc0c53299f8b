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
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "analysis/plot/rich_text.hpp"
#include "core/trace/result.hpp"

namespace kvscope {

namespace {

/// One column of times or ratios by length, with its band where the table has one.
struct Series {
  std::string column;  // "seconds"
  std::string low;     // empty: no band
  std::string high;
};

Series series_of(const Table& table, const std::string& column) {
  const bool has_band = table.has(column + "_low") && table.has(column + "_high");
  return {column, has_band ? column + "_low" : "", has_band ? column + "_high" : ""};
}

enum class TimedRole { method, reference, control };

/// Rows of one method and budget, by length.
struct Method {
  std::string key;
  std::string label;
  TimedRole role = TimedRole::method;
  std::map<double, std::size_t> rows;
};

/// " 128", " 16 pages", " 25%", " p=0.95"; empty for what takes no budget.
std::string budget_words(const Table& table, std::size_t row) {
  if (!table.has("budget") || std::isnan(table.numbers("budget")[row])) return "";
  const double budget = table.numbers("budget")[row];
  const std::string kind =
      table.has_text("budget_kind") ? table.text("budget_kind").at(row) : std::string("tokens");
  if (kind == "pages") return fmt::format(" {:g} pages", budget);
  if (kind == "ratio") return fmt::format(" {:g}%", 100.0 * budget);
  if (kind == "p") return fmt::format(" p={:g}", budget);
  return fmt::format(" {:g}", budget);
}

std::vector<Method> methods_of(const Table& table, const figures::Wanted& wanted) {
  const TextColumn& selectors = table.text("selector");
  const auto length = table.numbers("length");
  const auto seconds = table.numbers("seconds");
  const TextColumn* names = table.has_text("method") ? &table.text("method") : nullptr;
  const bool names_reference =
      names != nullptr && std::find(names->categories.begin(), names->categories.end(), "dense") !=
                              names->categories.end();
  std::vector<Method> methods;
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    const std::string& selector = selectors.at(r);
    const bool is_reference = selector == "full" && (!names_reference || names->at(r) == "dense");
    if (!(is_reference || wanted.has(selector)) || !std::isfinite(seconds[r])) continue;
    const std::string budget = budget_words(table, r);
    const std::string key = is_reference     ? "dense"
                            : budget.empty() ? selector
                                             : selector + ":" + budget;
    auto at = std::find_if(methods.begin(), methods.end(),
                           [&](const Method& method) { return method.key == key; });
    if (at == methods.end()) {
      const bool is_control = selector == "full" && !is_reference;
      methods.push_back({key,
                         is_reference ? "dense"
                         : is_control ? "full, as a method"
                                      : figures::method_label(selector) + budget,
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

class LatencyFigure {
 public:
  LatencyFigure(const Table& table, const std::vector<Method>& methods)
      : table_(table), methods_(methods), tones_(keys_of(methods)) {}

  /// Milliseconds of the sum of columns; a band for one column alone.
  void times(const std::string& label, const std::vector<Series>& parts) {
    plot::Panel panel = empty_panel(label);
    panel.y.scale = plot::ScaleKind::log10;
    for (const Method& method : methods_) {
      plot::Line line = line_of(method);
      for (const auto& [length, row] : method.rows) {
        double sum = 0.0;
        for (const Series& part : parts) {
          const double seconds = table_.numbers(part.column)[row];
          sum += std::isnan(seconds) ? 0.0 : seconds;
        }
        if (!(sum > 0.0)) continue;
        line.x.push_back(length);
        line.y.push_back(1e3 * sum);
        if (parts.size() == 1) add_band(line, parts[0], row, 1e3);
      }
      if (!line.x.empty()) panel.marks.emplace_back(std::move(line));
    }
    if (!panel.marks.empty()) figure_.panels.push_back(std::move(panel));
  }

  /// A recorded ratio of dense over sparse, as it stands in the table.
  void recorded_ratio(const std::string& label, const Series& ratio) {
    ratios(label, [&](const Method&, double, std::size_t row, plot::Line& line) {
      line.y.push_back(table_.numbers(ratio.column)[row]);
      add_band(line, ratio, row, 1.0);
    });
  }

  /// seconds of selector full over seconds, at the same length.
  bool ratio_of_seconds(const std::string& label) {
    const auto dense = std::find_if(methods_.begin(), methods_.end(), [](const Method& method) {
      return method.role == TimedRole::reference;
    });
    if (dense == methods_.end()) return false;
    const auto seconds = table_.numbers("seconds");
    return ratios(label, [&](const Method&, double length, std::size_t row, plot::Line& line) {
      const auto at = dense->rows.find(length);
      line.y.push_back(at == dense->rows.end() ? std::nan("") : seconds[at->second] / seconds[row]);
    });
  }

  plot::Figure take() {
    figure_.legend = plot::LegendPlace::above;
    if (figure_.panels.size() > 1) {
      figure_.columns = 2;
      figure_.span = plot::Span::full;
    }
    return std::move(figure_);
  }

 private:
  static std::vector<std::string> keys_of(const std::vector<Method>& methods) {
    std::vector<std::string> keys;
    for (const Method& method : methods) {
      if (method.role == TimedRole::method) keys.push_back(method.key);
    }
    return keys;
  }

  static plot::Panel empty_panel(const std::string& label) {
    plot::Panel panel;
    panel.x = figures::length_axis();
    panel.y.label = label;
    panel.aspect = 0.62;
    return panel;
  }

  plot::Line line_of(const Method& method) const {
    plot::Line line;
    line.label = method.label;
    switch (method.role) {
      case TimedRole::method:
        line.tone = tones_.of(method.key);
        break;
      case TimedRole::reference:
        line.tone = {plot::Role::reference, 1};
        break;
      case TimedRole::control:
        line.tone = {plot::Role::neutral, 0};
        line.markers = false;
        break;
    }
    return line;
  }

  void add_band(plot::Line& line, const Series& series, std::size_t row, double scale) const {
    if (series.low.empty()) return;
    line.low.push_back(scale * table_.numbers(series.low)[row]);
    line.high.push_back(scale * table_.numbers(series.high)[row]);
  }

  template <class Add>
  bool ratios(const std::string& label, Add&& add) {
    plot::Panel panel = empty_panel(label);
    for (const Method& method : methods_) {
      if (method.role == TimedRole::reference) continue;
      plot::Line line = line_of(method);
      for (const auto& [length, row] : method.rows) {
        line.x.push_back(length);
        add(method, length, row, line);
      }
      const bool is_known =
          std::any_of(line.y.begin(), line.y.end(), [](double y) { return std::isfinite(y); });
      if (is_known) panel.marks.emplace_back(std::move(line));
    }
    if (panel.marks.empty()) return false;
    panel.marks.emplace_back(plot::Rule{plot::Rule::Kind::horizontal, 1.0, ""});
    figure_.panels.push_back(std::move(panel));
    return true;
  }

  const Table& table_;
  const std::vector<Method>& methods_;
  figures::MethodTones tones_;
  plot::Figure figure_;
};

/// "3 turns; chunks of 128; 2 threads on AMD EPYC." as far as the result says it.
std::string conditions_of(const ResultView& result, const Table& table) {
  const auto& config = result.info().config;
  std::vector<std::string> parts;
  const auto number = [&](const char* key) {
    return config.is_object() && config.contains(key) && config[key].is_number()
               ? config[key].get<double>()
               : std::nan("");
  };
  double turns = number("repeat");
  if (std::isnan(turns) && table.has("repeat")) turns = table.numbers("repeat")[0];
  if (!std::isnan(turns))
    parts.push_back(fmt::format("n = {:g} turn{}", turns, turns == 1.0 ? "" : "s"));
  if (!std::isnan(number("chunk")))
    parts.push_back(fmt::format("chunks of {:g} tokens", number("chunk")));
  if (!std::isnan(number("threads"))) {
    const bool has_cpu = config.contains("cpu") && config["cpu"].is_string();
    parts.push_back(
        fmt::format("{:g} thread{}{}", number("threads"), number("threads") == 1.0 ? "" : "s",
                    has_cpu ? " on " + plot::verbatim(config["cpu"].get<std::string>()) : ""));
  }
  return parts.empty() ? "" : fmt::format("Measured: {}.", fmt::join(parts, "; "));
}

plot::Figure make_latency(const FigureInput& input) {
  const Table table = rows_of(*input.results[0]);
  const auto methods = methods_of(table, figures::Wanted(input.options.selector));
  LatencyFigure figure(table, methods);
  const bool is_ttft = table.has("ttft_seconds");
  const bool has_attention = is_ttft && table.has("attention_seconds");
  const Series seconds = series_of(table, "seconds");
  figure.times(is_ttft ? "Time to the first token (ms)" : "Time (ms)", {seconds});
  if (has_attention) {
    std::vector<Series> parts = {{"attention_seconds", "", ""}};
    if (table.has("selection_seconds")) parts.push_back({"selection_seconds", "", ""});
    figure.times("Attention and selection (ms)", parts);
  }
  bool has_ratio = false;
  if (table.has("ttft_ratio")) {
    const Series ratio = series_of(table, "ttft_ratio");
    figure.recorded_ratio("Speedup of the first token", ratio);
    has_ratio = true;
    if (has_attention && table.has("attention_ratio"))
      figure.recorded_ratio("Speedup of attention", series_of(table, "attention_ratio"));
  } else {
    has_ratio = figure.ratio_of_seconds("Speedup over dense");
  }
  plot::Figure out = figure.take();
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
  if (std::any_of(methods.begin(), methods.end(),
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
      .command = "kvscope bench live --json > live.json, or a CSV of measured or predicted times",
      .kinds = {"table|latency|simulate-latency"},
      .options = {"selector"},
      .make = make_latency,
  };
}

}  // namespace kvscope
