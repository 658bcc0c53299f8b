// Latency by context length, and how much faster than dense attention each method is.
//
// Columns of the table: selector, length (tokens), seconds; optional seconds_low and seconds_high
// (a band), budget. Speedups are against the rows of selector "full" at the same length.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/figures/selection.hpp"
#include "core/base/error.hpp"

namespace kvscope {

namespace {

struct Timing {
  double seconds = 0.0;
  double low = 0.0;
  double high = 0.0;
};

plot::Figure make_latency(const FigureInput& input) {
  const Table table = rows_of(*input.results[0]);
  const TextColumn& selectors = table.text("selector");
  const auto length = table.numbers("length");
  const auto seconds = table.numbers("seconds");
  const bool has_band = table.has("seconds_low") && table.has("seconds_high");
  const auto budget = table.has("budget") ? table.numbers("budget") : std::span<const double>();
  const auto wanted = figures::parse_words(input.options.selector);
  std::vector<std::string> names;
  std::map<std::string, std::string> labels;
  std::map<std::string, std::map<double, Timing>> curves;
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    const std::string& selector = selectors.at(r);
    const bool shown = wanted.empty() || selector == "full" ||
                       std::find(wanted.begin(), wanted.end(), selector) != wanted.end();
    if (!shown || !std::isfinite(seconds[r])) continue;
    const bool has_budget = !budget.empty() && !std::isnan(budget[r]);
    const std::string key = has_budget ? fmt::format("{}:{}", selector, budget[r]) : selector;
    if (!curves.contains(key)) {
      names.push_back(key);
      labels[key] = selector == "full" ? "dense" : figures::method_label(key);
    }
    curves[key][length[r]] = {seconds[r], has_band ? table.numbers("seconds_low")[r] : seconds[r],
                              has_band ? table.numbers("seconds_high")[r] : seconds[r]};
  }
  if (names.empty()) {
    throw ConfigError(
        fmt::format("{}: the selection is empty: no row with seconds is left", table.name()));
  }
  const figures::MethodTones tones(names);
  plot::Panel latency;
  latency.x.label = "Context length (tokens)";
  latency.y.label = "Milliseconds per call";
  latency.x.scale = plot::ScaleKind::log2;
  latency.x.format = plot::TickFormat::tokens;
  latency.y.scale = plot::ScaleKind::log10;
  plot::Panel speedup;
  speedup.x = latency.x;
  speedup.y.label = "Speedup over dense";
  for (const std::string& name : names) {
    plot::Line line;
    plot::Line ratio;
    line.label = ratio.label = labels[name];
    line.tone = ratio.tone = tones.of(name);
    for (const auto& [at, timing] : curves[name]) {
      line.x.push_back(at);
      line.y.push_back(1e3 * timing.seconds);
      if (has_band) {
        line.low.push_back(1e3 * timing.low);
        line.high.push_back(1e3 * timing.high);
      }
      const auto dense = curves.find("full");
      if (dense == curves.end() || !dense->second.contains(at)) continue;
      ratio.x.push_back(at);
      ratio.y.push_back(dense->second.at(at).seconds / timing.seconds);
    }
    latency.marks.emplace_back(std::move(line));
    if (!ratio.x.empty() && name != "full") speedup.marks.emplace_back(std::move(ratio));
  }
  plot::Figure figure;
  figure.legend = plot::LegendPlace::above;
  figure.panels.push_back(std::move(latency));
  if (!speedup.marks.empty()) {
    speedup.marks.emplace_back(plot::Rule{plot::Rule::Kind::horizontal, 1.0, ""});
    figure.panels.push_back(std::move(speedup));
    figure.columns = 2;
    figure.span = plot::Span::full;
  } else {
    figure.caption.emplace_back("No speedups: the table has no rows of selector full.");
  }
  if (has_band) figure.caption.emplace_back("Bands: seconds_low to seconds_high of the table.");
  return figure;
}

}  // namespace

FigureKind figure_latency() {
  return {
      .name = "latency",
      .shows = "seconds per call by context length, and speedup over dense attention",
      .needs =
          "a table with selector, length and seconds (seconds_low, seconds_high, budget optional)",
      .command = "kvscope bench live --json > live.json, or a CSV of measured or predicted times",
      .kinds = {"table|latency|simulate-latency"},
      .options = {"selector"},
      .make = make_latency,
  };
}

}  // namespace kvscope
