#include "gui/model/bounds/theorem_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/fields_json.hpp"

namespace kvscope::gui {

namespace {

constexpr plot::Range kRange{-1.04, 1.04};  // cosines, with room for points on the edge

double theorem_value(std::span<const float> column, std::size_t row) {
  return static_cast<double>(column[row]);
}

plot::ColourAxis colour_axis(const TheoremRows& rows, TheoremColour colour) {
  plot::ColourAxis axis;
  if (colour == TheoremColour::weight) {
    axis.axis.label = "Weight of $k$*";
    axis.axis.range = plot::Range{0.0, 1.0};
  } else {
    axis.axis.label = "Query position";
    axis.axis.range = plot::Range{0.0, static_cast<double>(std::max<Index>(1, rows.n_tokens))};
    axis.axis.format = plot::TickFormat::tokens;
  }
  return axis;
}

/// How k* was chosen, in words.
std::string star_words(const TheoremB1Options& options) {
  switch (options.star) {
    case StarKey::argmax:
      return "the key of largest weight";
    case StarKey::rank:
      return fmt::format("the key of rank {} by weight", options.rank);
    case StarKey::current:
      return "the query's own position";
    case StarKey::first:
      return "the first visible key";
    case StarKey::random:
      break;
  }
  return fmt::format("a key drawn at random (seed {})", options.seed);
}

}  // namespace

std::string TheoremRequest::key() const {
  return fmt::format("theorem-b1/{}/{}/{}", layer, q_head, fields_to_json(options).dump());
}

std::optional<std::size_t> TheoremRows::nearest(Index query_pos) const {
  if (query.empty()) return std::nullopt;
  const auto after = std::ranges::lower_bound(query, query_pos);
  if (after == query.begin()) return 0;
  const auto before = static_cast<std::size_t>(after - query.begin()) - 1;
  if (after == query.end() || query_pos - query[before] < *after - query_pos) return before;
  return before + 1;
}

TheoremRows theorem_rows(const TraceSource& trace, const TheoremRequest& request, JobContext& job) {
  const TracePart part(trace, {{request.layer}, {request.q_head}});
  TheoremRows rows;
  MemoryResult& result = rows.result;
  const auto summary =
      analyze_theorem_b1(part, request.options, {result, job.pool, job.progress, job.stop});
  const auto& totals = summary["totals"];
  rows.trace = file_name_of(trace);
  rows.request = request;
  rows.n_tokens = part.info().n_tokens;
  rows.n_stated = totals["rows"].get<Index>();
  rows.query = result.values<std::int64_t>("row_pos");
  rows.star = result.values<std::int32_t>("star_pos");
  rows.cos = result.values<float>("cos");
  rows.weight = result.values<float>("weight");
  rows.log_odds = result.values<float>("log_odds");
  rows.norm_eff = result.values<float>("norm_eff");
  rows.cos_mean_query = result.values<float>("cos_mean_query");
  for (std::size_t b = 0; b < kTheoremBounds; ++b) {
    const auto bound = static_cast<TheoremBound>(b);
    const std::string name(enum_name(bound));
    TheoremColumn& column = rows.columns[b];
    column.bound = result.values<float>(figures::array_of(bound));
    column.violated = result.values<std::uint8_t>("violated/" + name);
    column.violations = totals[name + "_violations"].get<Index>();
    column.gap_mean = number_of(totals, name + "_mean_gap");
  }
  return rows;
}

std::vector<TheoremBound> bounds_of(TheoremPicture picture, TheoremBound chosen) {
  using enum TheoremBound;
  if (picture == TheoremPicture::all) return {printed, repaired, jensen, worst};
  if (picture == TheoremPicture::main_text) return {main_relaxed, main_exact};
  return {chosen};
}

plot::Figure theorem_plot(const TheoremRows& rows, const std::vector<TheoremBound>& bounds,
                          TheoremColour colour) {
  if (rows.n_stated == 0) {
    throw ConfigError(
        "no row of this head makes a statement: each query sees one key only; choose another "
        "layer or a longer trace");
  }
  plot::Figure figure{.name = "theorem-b1", .columns = bounds.size() > 1 ? 2 : 1};
  figure.share_x = figure.share_y = bounds.size() > 1;  // inner labels would say the same again
  figure.span = plot::Span::full;
  figure.legend = plot::LegendPlace::above;
  for (const TheoremBound bound : bounds) {
    const std::span<const float> measured = rows.measured(bound);
    const TheoremColumn& column = rows.column(bound);
    figures::TheoremCounts counts(bound);
    plot::Scatter all, broken;
    for (std::size_t row = 0; row < rows.n_rows(); ++row) {
      if (std::isnan(column.bound[row]) || std::isnan(measured[row])) continue;
      const double x = theorem_value(column.bound, row);
      const double y = theorem_value(measured, row);
      all.add(x, y, row);
      counts.add(x, y, column.violated[row] != 0);
      all.value.push_back(colour == TheoremColour::weight ? theorem_value(rows.weight, row)
                                                          : static_cast<double>(rows.query[row]));
      if (column.violated[row] != 0 && must_hold(bound)) broken.add(x, y, row);
    }
    all.size = 0.8;
    all.opacity = 0.75;
    broken.label = "violation of a proved bound";
    broken.tone = {plot::Role::series, 1};
    broken.size = 2.0;

    plot::Panel panel = figures::theorem_panel(bound, kRange);
    if (bounds.size() > 1) panel.title += fmt::format(": {} violated", column.violations);
    if (bounds.size() == 1) panel.aspect = 0.7;
    panel.colour = colour_axis(rows, colour);
    panel.colour->show_bar = figure.panels.size() + 1 == bounds.size();
    panel.marks.emplace_back(figures::theorem_diagonal());
    panel.marks.emplace_back(std::move(all));
    if (!broken.x.empty()) panel.marks.emplace_back(std::move(broken));
    if (bounds.size() == 1) panel.marks.emplace_back(counts.note(/*line=*/0.055));
    figure.panels.push_back(std::move(panel));
  }
  figure.caption.push_back(fmt::format(
      "{}, layer {}, query head {}; n = {} of {} query rows that see more than one key, "
      "{} rows evenly spaced; $k$* is {}.",
      rows.trace, rows.request.layer, rows.request.q_head, rows.n_stated, rows.n_rows(),
      rows.n_rows(), star_words(rows.request.options)));
  figure.caption.push_back(
      fmt::format("A bound counts as violated where it is on the wrong side of the cosine by more "
                  "than {:g} and rounding. Lower bounds below −1 say nothing and are drawn at −1.",
                  rows.request.options.tolerance));
  return figure;
}

void mark_row(plot::Figure& figure, const TheoremRows& rows,
              const std::vector<TheoremBound>& bounds, std::size_t row) {
  for (std::size_t p = 0; p < bounds.size() && p < figure.panels.size(); ++p) {
    const double x = theorem_value(rows.column(bounds[p]).bound, row);
    const double y = theorem_value(rows.measured(bounds[p]), row);
    if (std::isnan(x) || std::isnan(y)) continue;
    figure.panels[p].marks.emplace_back(
        plot::Scatter{.label = fmt::format("query at position {}", rows.query[row]),
                      .tone = {plot::Role::highlight, 0},
                      .x = {x},
                      .y = {y},
                      .size = 2.4});
  }
}

std::string theorem_csv(const TheoremRows& rows) {
  std::string csv = "query,star,weight,log_odds,norm_eff,cos,cos_mean_query";
  for (const std::string_view name : EnumNames<TheoremBound>::value) {
    csv += fmt::format(",{},{}_violated", name, name);
  }
  csv += '\n';
  const auto number = [](float value) {
    return std::isnan(value) ? std::string() : fmt::format("{:.9g}", value);
  };
  for (std::size_t row = 0; row < rows.n_rows(); ++row) {
    csv += fmt::format("{},{},{},{},{},{},{}", rows.query[row], rows.star[row],
                       number(rows.weight[row]), number(rows.log_odds[row]),
                       number(rows.norm_eff[row]), number(rows.cos[row]),
                       number(rows.cos_mean_query[row]));
    for (const TheoremColumn& column : rows.columns) {
      csv += fmt::format(",{},{}", number(column.bound[row]), column.violated[row]);
    }
    csv += '\n';
  }
  return csv;
}

}  // namespace kvscope::gui
