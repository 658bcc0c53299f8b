#include "gui/model/compare/compare_figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/figures/maps.hpp"
#include "core/base/nan.hpp"

namespace kvscope::gui {

namespace {

constexpr plot::Tone kToneMarked{plot::Role::highlight, 0};

/// More lines than this in a row of a rug cannot be told apart.
constexpr Index kMostRugLines = 1500;
constexpr double kRugRows = 3.0;  // from the bottom up: only B, only A, both

/// Attention below this part of the largest is drawn at the lower end.
constexpr double kDecadesShown = 1e-6;

std::string place_of(const CompareSide& side) {
  return fmt::format("{}, layer {}, query head {}", side.document->name(), side.request.layer,
                     side.request.q_head);
}

void add_rules(plot::Panel& panel, const CompareMarks& marks, bool with_query) {
  if (with_query && marks.query) {
    panel.marks.emplace_back(plot::Rule{plot::Rule::Kind::horizontal,
                                        static_cast<double>(*marks.query) + 0.5, "", kToneMarked});
  }
  if (marks.key) {
    const double middle = static_cast<double>(*marks.key) + (with_query ? 0.5 : 0.0);
    panel.marks.emplace_back(plot::Rule{plot::Rule::Kind::vertical, middle, "", kToneMarked});
  }
}

// ---- maps ----

plot::Panel map_panel(const KeptComparison& c, const std::vector<float>& values,
                      std::string title) {
  plot::HeatMap map{.n_rows = c.n_blocks(),
                    .n_cols = c.n_pages(),
                    .values = values,
                    .x = {static_cast<double>(c.page_begins.front()),
                          static_cast<double>(c.page_begins.back() + c.cells.page_size)},
                    .y = {static_cast<double>(c.block_begins.front()),
                          static_cast<double>(c.block_begins.back() + c.cells.query_block)}};
  plot::ColourAxis colour;
  colour.masked_label = "not visible";
  plot::Panel panel = figures::attention_panel(std::move(map), std::move(title), std::move(colour));
  panel.aspect = 0.95;
  panel.grid = false;
  return panel;
}

float largest_of(const std::vector<float>& values) {
  float largest = 0.0F;
  for (const float v : values)
    largest = std::isfinite(v) ? std::max(largest, std::abs(v)) : largest;
  return largest;
}

/// [0, largest], never of zero width.
plot::Range upto(float largest) {
  return {0.0, largest > 0.0F ? static_cast<double>(largest) : 1.0};
}

std::string sampling_sentence(const KeptComparison& c, const CompareSide& side) {
  const bool is_prefill = side.request.phase == Phase::prefill;
  std::string words = fmt::format("n = {} queries in {} {}", c.n_queries, c.n_calls,
                                  is_prefill ? "prefill chunks" : "decode steps");
  if (side.request.rows_per_chunk) {
    words += fmt::format(", at most {} evenly spaced ones per chunk", *side.request.rows_per_chunk);
  }
  return words + ".";
}

std::string dense_sentence(const KeptComparison& c) {
  if (c.dense_a && c.dense_b) return "Both sides leave this layer dense.";
  if (c.dense_a || c.dense_b) {
    return fmt::format("{} leaves this layer dense.", c.dense_a ? "A" : "B");
  }
  return {};
}

// ---- one query ----

plot::Axis position_axis(TokenRange visible) {
  plot::Axis axis{
      .label = "Key position", .format = plot::TickFormat::tokens, .whole_numbers = true};
  const double room = std::max(0.5, 0.01 * static_cast<double>(visible.size()));
  axis.range = plot::Range{static_cast<double>(visible.begin) - room,
                           static_cast<double>(visible.end - 1) + room};
  return axis;
}

plot::Axis attention_axis(double largest) {
  plot::Axis axis{.label = "Attention", .scale = plot::ScaleKind::log10};
  const double top = largest > 0.0 ? largest : 1.0;
  axis.range = plot::Range{kDecadesShown * top, 2.0 * top};
  return axis;
}

plot::Line attention_line(const AttentionRow& row, std::string label, plot::Tone tone) {
  plot::Line line{.label = std::move(label), .tone = tone, .markers = false};
  for (Index pos = row.visible.begin; pos < row.visible.end; ++pos) {
    line.add(static_cast<double>(pos), row.prob(pos));
  }
  return line;
}

/// Two panels over the same positions.
plot::Figure stacked(const char* name, plot::Panel above, plot::Panel below) {
  return {.name = name,
          .panels = {std::move(above), std::move(below)},
          .columns = 1,
          .share_x = true,
          .legend = plot::LegendPlace::above,
          .span = plot::Span::full};
}

plot::Scatter kept_points(const QueryKeys& query, const KeyPart& part, std::string label,
                          plot::Tone tone) {
  plot::Scatter points{.label = std::move(label), .tone = tone};
  for (const KeyPos key : part.keys) {
    points.add(static_cast<double>(key), query.row.prob(key));
  }
  return points;
}

/// One upright line per key at height [low, high]; the first key of each stretch where there are
/// too many of them.
plot::Line rug_lines(const KeyPart& part, TokenRange visible, double low, double high,
                     plot::Tone tone) {
  plot::Line line{.tone = tone, .markers = false};
  const bool folded = static_cast<Index>(part.keys.size()) > kMostRugLines;
  const Index stretch = folded ? (visible.size() + kMostRugLines - 1) / kMostRugLines : 1;
  std::optional<Index> last;
  for (const KeyPos key : part.keys) {
    const Index place = (key - visible.begin) / stretch;
    if (last == place) continue;
    last = place;
    const auto x = static_cast<double>(key);
    line.x.insert(line.x.end(), {x, x, kNan});
    line.y.insert(line.y.end(), {low, high, kNan});
  }
  return line;
}

struct RugRow {
  const KeyPart* part;
  std::string_view name;
  plot::Tone tone;
};

std::string query_sentence(const CompareSides& sides, Index query) {
  std::string words = fmt::format("Query at position {} of {}.", query, place_of(sides.a));
  if (query != sides.query) {
    words +=
        fmt::format(" It is the measured one nearest to the selected position {}.", sides.query);
  }
  return words;
}

std::optional<KeyPos> nearest_key(const KeyPart& part, double pos) {
  const auto best = std::ranges::min_element(
      part.keys, {}, [&](KeyPos key) { return std::abs(static_cast<double>(key) - pos); });
  return best == part.keys.end() ? std::nullopt : std::optional(*best);
}

std::string kl_text(double kl, bool is_bound) {
  return std::isfinite(kl) ? fmt::format("{}{:.4g}", is_bound ? "at least " : "", kl) : "infinite";
}

}  // namespace

std::string signed_with_interval(double value, const std::optional<Interval>& interval) {
  std::string words = fmt::format("{:+.4f}", value);
  if (interval) words += fmt::format(" [{:+.4f}, {:+.4f}]", interval->low, interval->high);
  return words;
}

plot::Figure compare_maps_figure(const KeptComparison& c, const CompareSides& sides,
                                 bool shared_scale, const CompareMarks& marks) {
  plot::Figure figure{.name = "compare-maps",
                      .panels = {map_panel(c, c.share_a, "A: " + sides.a.label),
                                 map_panel(c, c.share_b, "B: " + sides.b.label),
                                 map_panel(c, c.difference, "A − B")}};
  const float a = largest_of(c.share_a);
  const float b = largest_of(c.share_b);
  figure.panels[0].colour->axis.range = upto(shared_scale ? std::max(a, b) : a);
  figure.panels[1].colour->axis.range = upto(shared_scale ? std::max(a, b) : b);
  const double widest = upto(largest_of(c.difference)).high;
  plot::ColourAxis& signed_colours = *figure.panels[2].colour;
  signed_colours.map = plot::ColourMap::diverging;
  signed_colours.axis.range = plot::Range{-widest, widest};
  for (plot::Panel& panel : figure.panels) {
    panel.colour->axis.label = "Share kept";
    panel.colour->axis.format = plot::TickFormat::percent;
    add_rules(panel, marks, /*with_query=*/true);
  }
  figure.panels[2].colour->axis.label = "Difference of shares";
  figure.panels[0].colour->show_bar = !shared_scale;
  figure.columns = 3;
  figure.share_y = true;
  figure.span = plot::Span::full;
  figure.legend = plot::LegendPlace::above;
  figure.caption = {
      fmt::format("Share of the visible keys of a page ({} positions) that the queries of a block "
                  "({} positions) keep. A: {} ({}); B: {} ({}).",
                  c.cells.page_size, c.cells.query_block, sides.a.label, place_of(sides.a),
                  sides.b.label, place_of(sides.b)),
      fmt::format("Attention mass kept: A {:.4f}, B {:.4f}, A − B {}{}.", c.mass_a, c.mass_b,
                  signed_with_interval(c.mass_a - c.mass_b, c.interval),
                  c.interval ? " (paired 95 % bootstrap interval over calls)" : ""),
      fmt::format("Keys kept per query: A {:.1f}, B {:.1f}; mean Jaccard index {:.3f}.", c.kept_a,
                  c.kept_b, c.jaccard),
      sampling_sentence(c, sides.a)};
  if (const std::string dense = dense_sentence(c); !dense.empty()) figure.caption.push_back(dense);
  return figure;
}

plot::Figure compare_keys_figure(const QueryKeys& query, const CompareSides& sides,
                                 const CompareMarks& marks) {
  const AttentionRow& row = query.row;
  plot::Panel attention{
      .x = position_axis(row.visible), .y = attention_axis(row.prob(row.max_key)), .aspect = 0.35};
  attention.marks.emplace_back(attention_line(row, "all keys", {plot::Role::neutral, 0}));
  attention.marks.emplace_back(kept_points(query, query.both, "kept by both", kToneBoth));
  attention.marks.emplace_back(kept_points(query, query.only_a, "only by A", kToneA));
  attention.marks.emplace_back(kept_points(query, query.only_b, "only by B", kToneB));
  add_rules(attention, marks, /*with_query=*/false);

  plot::Panel rug{
      .x = attention.x, .y = {.range = plot::Range{0.0, kRugRows}}, .aspect = 0.14, .grid = false};
  const RugRow rows[] = {{&query.only_b, "only B", kToneB},
                         {&query.only_a, "only A", kToneA},
                         {&query.both, "both", kToneBoth}};
  for (std::size_t i = 0; i < std::size(rows); ++i) {
    const auto base = static_cast<double>(i);
    rug.y.ticks.push_back({base + 0.5, std::string(rows[i].name)});
    rug.marks.emplace_back(
        rug_lines(*rows[i].part, row.visible, base + 0.12, base + 0.88, rows[i].tone));
  }
  // An empty rug still has its rows.
  rug.marks.emplace_back(plot::Line{.tone = {plot::Role::neutral, 0},
                                    .x = {rug.x.range->low, rug.x.range->high},
                                    .y = {0.0, 0.0},
                                    .markers = false});
  add_rules(rug, marks, /*with_query=*/false);

  plot::Figure figure = stacked("compare-keys", std::move(attention), std::move(rug));
  figure.caption = {
      query_sentence(sides, row.query) +
          fmt::format(" A: {}; B: {}.", sides.a.label, sides.b.label),
      fmt::format(
          "Keys (and dense attention on them): both {} ({:.4f}), only A {} ({:.4f}), only B "
          "{} ({:.4f}); Jaccard index {:.3f}.",
          query.both.keys.size(), query.both.mass, query.only_a.keys.size(), query.only_a.mass,
          query.only_b.keys.size(), query.only_b.mass, query.jaccard)};
  const auto most = static_cast<Index>(
      std::max({query.both.keys.size(), query.only_a.keys.size(), query.only_b.keys.size()}));
  if (most > kMostRugLines) {
    figure.caption.push_back(
        fmt::format("Below, a row of more than {} keys shows one line per stretch of positions.",
                    kMostRugLines));
  }
  return figure;
}

plot::Figure compare_rows_figure(const RowDifference& rows, const CompareSides& sides,
                                 const CompareMarks& marks) {
  plot::Panel attention{
      .x = position_axis(rows.visible),
      .y = attention_axis(std::max(rows.a.prob(rows.a.max_key), rows.b.prob(rows.b.max_key))),
      .aspect = 0.28};
  attention.marks.emplace_back(attention_line(rows.a, "A: " + sides.a.label, kToneA));
  attention.marks.emplace_back(attention_line(rows.b, "B: " + sides.b.label, kToneB));
  add_rules(attention, marks, /*with_query=*/false);

  plot::Panel difference;
  difference.x = attention.x;
  difference.y.label = "A − B";
  const double widest = upto(largest_of(rows.difference)).high;
  difference.y.range = plot::Range{-1.05 * widest, 1.05 * widest};
  difference.aspect = 0.22;
  difference.marks.emplace_back(
      plot::Rule{plot::Rule::Kind::horizontal, 0.0, "", {plot::Role::neutral, 0}});
  plot::Line line{.tone = kToneBoth, .markers = false};
  for (std::size_t i = 0; i < rows.difference.size(); ++i) {
    line.add(static_cast<double>(rows.visible.begin + static_cast<Index>(i)),
             static_cast<double>(rows.difference[i]));
  }
  difference.marks.emplace_back(std::move(line));
  add_rules(difference, marks, /*with_query=*/false);

  plot::Figure figure = stacked("compare-rows", std::move(attention), std::move(difference));
  figure.caption = {
      fmt::format("Attention of the query at position {} to all keys before it: {} (A) and {} (B).",
                  rows.a.query, place_of(sides.a), place_of(sides.b)),
      fmt::format("Total variation distance {:.4f}; KL(A‖B) {} nat, KL(B‖A) {} nat.",
                  rows.total_variation, kl_text(rows.kl_a_b, rows.has_underflow),
                  kl_text(rows.kl_b_a, rows.has_underflow))};
  return figure;
}

std::optional<Index> key_under(const QueryKeys& query, std::size_t panel, double x, double y) {
  const bool in_rug = panel == 1;
  if (!in_rug) {
    const auto pos = static_cast<Index>(std::lround(x));
    const bool is_visible = pos >= query.row.visible.begin && pos < query.row.visible.end;
    return is_visible ? std::optional(pos) : std::nullopt;
  }
  if (!(y >= 0.0 && y < kRugRows)) return std::nullopt;
  const KeyPart& part = y < 1.0 ? query.only_b : y < 2.0 ? query.only_a : query.both;
  return nearest_key(part, x);
}

std::string_view kept_by(const QueryKeys& query, Index key) {
  const auto holds = [&](const KeyPart& part) {
    return std::ranges::binary_search(part.keys, static_cast<KeyPos>(key));
  };
  if (holds(query.both)) return "both";
  if (holds(query.only_a)) return "only A";
  return holds(query.only_b) ? "only B" : "neither";
}

}  // namespace kvscope::gui
