// The census of ties: rows whose cut lies among equal scores, and keys that the order of these
// decides.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/figures/selection.hpp"
#include "analysis/figures/summary_rows.hpp"
#include "core/base/error.hpp"
#include "core/base/nan.hpp"
#include "core/trace/result.hpp"

namespace kvscope {

namespace {

struct TieValue {
  std::string key;
  std::string title;
  plot::TickFormat format;
};

plot::Figure make_ties(const FigureInput& input) {
  const ResultView& result = *input.results[0];
  const nlohmann::ordered_json* rows = figures::list_at(result.summary(), "rows");
  if (rows == nullptr)
    throw FormatError(fmt::format("{}: the summary has no cases", result.name()));

  std::vector<std::string> lines;  // "quest, pages of 16"
  std::vector<std::string> refused;
  std::vector<std::array<const nlohmann::ordered_json*, 3>> cells;
  constexpr std::array<std::string_view, 3> kTypes = {"f32", "bf16", "fp8"};
  for (const auto& one : *rows) {
    const double number = figures::number_at(one, "page");
    const Index page = number >= 1.0 && number < 1e9 ? static_cast<Index>(number) : 1;
    const std::string line =
        fmt::format("{}, {}", figures::method_label(figures::text_at(one, "selector", "?")),
                    page == 1 ? std::string("tokens") : fmt::format("pages of {}", page));
    const auto type = std::find(kTypes.begin(), kTypes.end(), figures::text_at(one, "scores"));
    if (type == kTypes.end()) continue;
    if (!figures::text_at(one, "refused").empty()) {
      const std::string sentence = fmt::format("{} ({})", line, figures::text_at(one, "refused"));
      if (std::find(refused.begin(), refused.end(), sentence) == refused.end())
        refused.push_back(sentence);
    }
    if (lines.empty() || lines.back() != line) {
      lines.push_back(line);
      cells.push_back({});
    }
    cells.back()[static_cast<std::size_t>(type - kTypes.begin())] = &one;
  }

  std::vector<TieValue> values;
  const std::vector<std::string> wanted = figures::parse_words(input.options.metric);
  for (const TieValue& one :
       {TieValue{"tie_share", "Rows with a tie at the cut", plot::TickFormat::percent},
        TieValue{"changed", "Keys changed per row", plot::TickFormat::number},
        TieValue{"close_share", "Rows, gap below a step", plot::TickFormat::percent}}) {
    if (wanted.empty() || std::find(wanted.begin(), wanted.end(), one.key) != wanted.end())
      values.push_back(one);
  }
  if (values.empty() || (!wanted.empty() && values.size() != wanted.size())) {
    throw ConfigError(
        fmt::format("metric: expected some of tie_share, changed, close_share, found {}",
                    input.options.metric));
  }
  plot::Figure figure;
  figure.columns = static_cast<int>(values.size());
  figure.share_y = true;
  figure.span = values.size() == 1 ? plot::Span::column : plot::Span::full;
  figure.legend = plot::LegendPlace::above;
  std::vector<plot::Tick> names;
  for (std::size_t i = 0; i < lines.size(); ++i)
    names.push_back({static_cast<double>(i), lines[i]});
  const auto n = static_cast<double>(lines.size());
  for (const TieValue& value : values) {
    plot::Panel panel;
    panel.x.label = value.title;
    panel.x.format = value.format;
    panel.y.range = plot::Range{-0.6, n - 0.4};
    panel.y.reversed = true;
    panel.y.ticks = names;
    panel.y.has_names = true;
    panel.aspect = 1.6;
    double largest = 0.0;
    std::size_t n_points = 0;
    for (std::size_t t = 0; t < kTypes.size(); ++t) {
      plot::Scatter points;
      points.label = t == 2 ? "fp8 (e4m3)" : std::string(kTypes[t]);
      points.tone = {plot::Role::series, static_cast<int>(t)};
      points.size = 1.3;
      for (std::size_t i = 0; i < lines.size(); ++i) {
        const auto* one = cells[i][t];
        const double x = one == nullptr ? kNan : figures::number_at(*one, value.key);
        if (!std::isfinite(x)) continue;
        points.x.push_back(x);
        points.y.push_back(static_cast<double>(i));
        largest = std::max(largest, x);
      }
      n_points += points.x.size();
      if (!points.x.empty()) panel.marks.emplace_back(std::move(points));
    }
    if (n_points == 0)
      throw ConfigError(fmt::format("{}: no method could take any case", result.name()));
    const bool is_share = value.format == plot::TickFormat::percent;
    panel.x.range =
        is_share ? plot::Range{-0.02, 1.02}
                 : plot::Range{-0.02 * std::max(largest, 1.0), 1.08 * std::max(largest, 1.0)};
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const bool is_refused = std::all_of(cells[i].begin(), cells[i].end(), [](const auto* one) {
        return one == nullptr || !figures::text_at(*one, "refused").empty();
      });
      if (is_refused)
        panel.marks.emplace_back(
            plot::Note{"not taken", 0.02, (static_cast<double>(i) + 0.6) / (n + 0.2) - 0.5 / n});
    }
    figure.panels.push_back(std::move(panel));
  }
  const auto& config = result.info().config;
  figure.caption.push_back(
      fmt::format("{}: share of the rows (list owners at decode steps) whose k-th and next score "
                  "are equal when scores are stored in a "
                  "type, keys that differ between the two extreme orders of equal scores, and "
                  "share of the rows whose exact gap there is "
                  "below one rounding step of the type. fp8 has one power of two as scale per row.",
                  figures::text_at(config, "budget", "?")));
  if (!refused.empty())
    figure.caption.push_back(fmt::format("Not taken: {}.", fmt::join(refused, "; ")));
  return figure;
}

}  // namespace

FigureKind figure_ties() {
  return {
      .name = "ties",
      .shows =
          "how often the cut of a top-k lies among equal scores, by number type and size of pages",
      .needs = "a census of ties",
      .command = "kvscope analyze ties trace.h5 --out ties.h5",
      .kinds = {"ties"},
      .options = {"metric"},
      .make = make_ties,
  };
}

}  // namespace kvscope
