#include "gui/model/bounds/quest_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>

namespace kvscope::gui {

namespace {

// Orange beside the grey of the others, also for who does not tell red from green, and apart from
// the accent of what is selected; a violation in ink.
constexpr plot::Tone kKept{plot::Role::series, 4};
constexpr plot::Tone kViolated{plot::Role::reference, 0};
constexpr plot::Tone kSelected{plot::Role::highlight, 0};
constexpr Index kGrid = 400;  // cells per axis that keep one point each when there are too many

double value_of(const std::vector<float>& column, std::size_t at) {
  return static_cast<double>(column[at]);
}

plot::Scatter points_of(std::string label, plot::Tone tone, double size, double opacity = 1.0) {
  return {.label = std::move(label), .tone = tone, .size = size, .opacity = opacity};
}

/// One point per cell of a grid over all of them, the first one.
plot::Scatter thinned(const plot::Scatter& all) {
  if (all.x.empty()) return all;
  const auto range_of = [](const std::vector<double>& v) {
    const auto [low, high] = std::minmax_element(v.begin(), v.end());
    return plot::Range{*low, *high};
  };
  const plot::Range x = range_of(all.x);
  const plot::Range y = range_of(all.y);
  const auto cell = [](double v, plot::Range r) {
    const double width = std::max(r.high - r.low, std::numeric_limits<double>::min());
    return static_cast<Index>((v - r.low) / width * static_cast<double>(kGrid));
  };
  plot::Scatter few = points_of(all.label, all.tone, all.size, all.opacity);
  std::unordered_set<Index> taken;
  for (std::size_t i = 0; i < all.x.size(); ++i) {
    if (taken.insert(cell(all.y[i], y) * (kGrid + 1) + cell(all.x[i], x)).second)
      few.add(all.x[i], all.y[i], all.of[i]);
  }
  return few;
}

std::string source_sentence(const std::string& trace, const QuestRequest& request,
                            QuestSemantics semantics) {
  return fmt::format(
      "{}, layer {}, query head {}; pages of {} keys, a budget of {} tokens as Quest's {} program "
      "reads it. Dot products are unscaled.",
      trace, request.layer, request.q_head, request.page_size, request.budget,
      enum_name(semantics));
}

// ---- the profile of one query ----

double middle_of(TokenRange keys) {
  return 0.5 * static_cast<double>(keys.begin + keys.end);
}

/// From the lowest to the highest of both curves, with some room.
plot::Range height_of(const QuestPages& pages) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const auto* column : {&pages.bound, &pages.true_max}) {
    for (const float v : *column) {
      low = std::min(low, static_cast<double>(v));
      high = std::max(high, static_cast<double>(v));
    }
  }
  const double room = std::max({0.04 * (high - low), 0.02 * std::abs(high), 1e-3});
  return {low - room, high + room};
}

/// A staircase with a step per page.
plot::Line staircase(const QuestPages& pages, const std::vector<float>& values, std::string label,
                     plot::Tone tone) {
  plot::Line line{.label = std::move(label), .tone = tone, .markers = false, .steps = true};
  for (std::size_t p = 0; p < pages.n_pages(); ++p) {
    line.add(static_cast<double>(pages.keys_of(p).begin), value_of(values, p));
  }
  line.add(static_cast<double>(pages.visible.end), line.y.back());
  return line;
}

/// The ground below the bound of each kept page; gaps between the pages.
plot::Area filled_pages(const QuestPages& pages, const std::vector<std::uint8_t>& kept,
                        double floor) {
  constexpr double kGap = std::numeric_limits<double>::quiet_NaN();
  plot::Area area{.label = "kept pages", .tone = kKept};
  for (std::size_t p = 0; p < pages.n_pages(); ++p) {
    if (kept[p] == 0) continue;
    const TokenRange keys = pages.keys_of(p);
    const auto begin = static_cast<double>(keys.begin);
    const auto end = static_cast<double>(keys.end);
    const double top = value_of(pages.bound, p);
    area.x.insert(area.x.end(), {begin, end, end});
    area.low.insert(area.low.end(), {floor, floor, kGap});
    area.high.insert(area.high.end(), {top, top, kGap});
  }
  return area;
}

}  // namespace

plot::Figure quest_cloud(const QuestSteps& steps, QuestSemantics semantics) {
  plot::Scatter others = points_of("other pages", {plot::Role::neutral, 0}, 0.7, 0.5);
  plot::Scatter kept = points_of("kept pages", kKept, 0.8, 0.8);
  plot::Scatter broken = points_of("bound violated", kViolated, 2.0);
  std::size_t n_points = 0;
  for (const QuestPages& step : steps.steps) {
    for (std::size_t slot = 0; slot < step.n_pages(); ++slot, ++n_points) {
      const bool is_kept = step.choice(semantics).kept[slot] != 0;
      const double x = value_of(step.true_max, slot);
      const double y = value_of(step.bound, slot);
      (is_kept ? kept : others).add(x, y, n_points);
      if (step.violated[slot] != 0) broken.add(x, y, n_points);
    }
  }
  const bool is_thinned = n_points > kMostCloudPoints;
  if (is_thinned) {
    others = thinned(others);
    kept = thinned(kept);
  }

  plot::Figure figure{.name = "quest-bounds", .span = plot::Span::full};
  plot::Panel panel{.x = {.label = "True page maximum, $q·k$"},
                    .y = {.label = "Bound of the page, $q·k$"},
                    .aspect = 0.7,
                    .legend = plot::LegendPlace::above};
  auto& caption = figure.caption;
  caption.push_back(source_sentence(steps.trace, steps.request, semantics));
  caption.push_back(
      fmt::format("n = {} pages of {} {} positions; {} bounds below the true maximum.", n_points,
                  steps.steps.size(), steps.decoded ? "decoded" : "prompt", steps.violations));
  if (is_thinned) {
    caption.push_back(fmt::format(
        "Drawn: {} of the points, the first in each cell of a {} x {} grid; no violation is left "
        "out.",
        others.x.size() + kept.x.size(), kGrid, kGrid));
  }
  const auto put = [&](plot::Scatter& points) {
    if (!points.x.empty()) panel.marks.emplace_back(std::move(points));
  };
  put(others);
  panel.marks.emplace_back(plot::Rule{plot::Rule::Kind::diagonal, 0.0, "bound = maximum"});
  put(kept);
  put(broken);
  figure.panels.push_back(std::move(panel));
  return figure;
}

void mark_query(plot::Figure& cloud, const QuestPages& pages, std::optional<Index> key) {
  plot::Scatter all =
      points_of(fmt::format("pages of the query at position {}", pages.query), kSelected, 0.7);
  plot::Scatter one = points_of("selected page", kSelected, 2.4);
  const auto marked = key ? pages.slot_of(*key) : std::nullopt;
  for (std::size_t slot = 0; slot < pages.n_pages(); ++slot) {
    plot::Scatter& scatter = marked == slot ? one : all;
    scatter.add(value_of(pages.true_max, slot), value_of(pages.bound, slot));
  }
  for (plot::Scatter* scatter : {&all, &one}) {
    if (!scatter->x.empty()) cloud.panels.at(0).marks.emplace_back(std::move(*scatter));
  }
}

plot::Figure quest_profile(const QuestSteps& query, QuestSemantics semantics) {
  const QuestPages& pages = query.steps.front();
  const auto& kept = pages.choice(semantics).kept;
  const plot::Range height = height_of(pages);
  plot::Figure figure{.name = "quest-pages", .span = plot::Span::full};
  plot::Panel panel;
  panel.x.label = fmt::format("Position in the context (pages of {} keys)", pages.page_size);
  panel.x.format = plot::TickFormat::tokens;
  panel.x.range =
      plot::Range{static_cast<double>(pages.visible.begin), static_cast<double>(pages.visible.end)};
  panel.y.label = "$q·k$";
  panel.y.range = height;
  panel.aspect = 0.5;
  panel.legend = plot::LegendPlace::above;

  plot::Area filled = filled_pages(pages, kept, height.low);
  if (!filled.x.empty()) panel.marks.emplace_back(std::move(filled));
  panel.marks.emplace_back(
      staircase(pages, pages.true_max, "true maximum", {plot::Role::reference, 0}));
  panel.marks.emplace_back(staircase(pages, pages.bound, "bound", kKept));
  plot::Scatter tops = points_of({}, kKept, 0.8);
  plot::Scatter broken = points_of("bound violated", kViolated, 2.0);
  for (std::size_t p = 0; p < pages.n_pages(); ++p) {
    for (plot::Scatter* scatter : {&tops, &broken}) {
      if ((scatter == &tops ? kept[p] : pages.violated[p]) == 0) continue;
      scatter->x.push_back(middle_of(pages.keys_of(p)));
      scatter->y.push_back(value_of(pages.bound, p));
    }
  }
  if (!tops.x.empty()) panel.marks.emplace_back(std::move(tops));
  plot::Scatter best = points_of("truly best page", kSelected, 1.6);
  best.x = {middle_of(pages.keys_of(pages.best()))};
  best.y = {value_of(pages.true_max, pages.best())};
  panel.marks.emplace_back(std::move(best));
  if (!broken.x.empty()) panel.marks.emplace_back(std::move(broken));
  figure.panels.push_back(std::move(panel));

  figure.caption.push_back(source_sentence(query.trace, query.request, semantics));
  figure.caption.push_back(fmt::format(
      "The query at position {}: {} of {} pages kept, with {:.1f} % of the attention; {} bounds "
      "below the true maximum.",
      pages.query, pages.n_kept(semantics), pages.n_pages(), 100.0 * pages.choice(semantics).mass,
      pages.violations));
  return figure;
}

void mark_page(plot::Figure& profile, const QuestPages& pages, Index key) {
  const auto slot = pages.slot_of(key);
  if (!slot) return;
  const TokenRange keys = pages.keys_of(*slot);
  profile.panels.at(0).marks.emplace_back(
      plot::Boxes{.label = "selected page",
                  .x = {{static_cast<double>(keys.begin), static_cast<double>(keys.end)}},
                  .y = {height_of(pages)}});
}

std::string quest_csv(const QuestSteps& steps, QuestSemantics semantics) {
  std::string csv = "query,page,first_key,last_key,bound,true_max,gap_logits,kept,violated\n";
  for (const QuestPages& of : steps.steps) {
    const auto& kept = of.choice(semantics).kept;
    for (std::size_t slot = 0; slot < of.n_pages(); ++slot) {
      const TokenRange keys = of.keys_of(slot);
      const double gap = steps.scale * (value_of(of.bound, slot) - value_of(of.true_max, slot));
      fmt::format_to(std::back_inserter(csv), "{},{},{},{},{:.9g},{:.9g},{:.6g},{},{}\n", of.query,
                     of.first_page + static_cast<Index>(slot), keys.begin, keys.end - 1,
                     of.bound[slot], of.true_max[slot], gap, kept[slot], of.violated[slot]);
    }
  }
  return csv;
}

std::vector<QuestViolation> quest_violations(const QuestSteps& steps, std::size_t most) {
  std::vector<QuestViolation> found;
  for (const QuestPages& of : steps.steps) {
    for (std::size_t slot = 0; slot < of.n_pages() && found.size() < most; ++slot) {
      if (of.violated[slot] == 0) continue;
      const TokenRange keys = of.keys_of(slot);
      found.push_back(
          {of.query, keys.begin,
           fmt::format("query {}, page {} (keys {} to {}): bound {:.9g} below the true maximum "
                       "{:.9g}",
                       of.query, of.first_page + static_cast<Index>(slot), keys.begin, keys.end - 1,
                       of.bound[slot], of.true_max[slot])});
    }
  }
  return found;
}

}  // namespace kvscope::gui
