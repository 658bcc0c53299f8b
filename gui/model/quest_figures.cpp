#include "gui/model/quest_figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>

#include "analysis/quest_step.hpp"

namespace kvscope::gui {

namespace {

constexpr int kViolationSlot = 1;  // the theme's warm colour
constexpr Index kGrid = 400;  // cells per axis that keep one point each when there are too many

std::string_view program_of(QuestSemantics semantics) {
  return kQuestSemanticsNames[static_cast<std::size_t>(semantics)];
}

/// Points of one mark and what they are.
struct Points {
  plot::Scatter scatter;
  std::vector<QuestPlace> places;

  void add(const QuestPages& pages, std::size_t slot) {
    scatter.x.push_back(static_cast<double>(pages.true_max[slot]));
    scatter.y.push_back(static_cast<double>(pages.bound[slot]));
    places.push_back({pages.query, slot});
  }
};

/// One point per cell of a grid over all of them, the first one.
Points thinned(const Points& all) {
  const auto range_of = [](const std::vector<double>& v) {
    const auto [low, high] = std::minmax_element(v.begin(), v.end());
    return plot::Range{*low, *high};
  };
  const plot::Range x = range_of(all.scatter.x);
  const plot::Range y = range_of(all.scatter.y);
  const auto cell = [](double v, plot::Range r) {
    const double width = std::max(r.high - r.low, std::numeric_limits<double>::min());
    return static_cast<Index>((v - r.low) / width * static_cast<double>(kGrid));
  };
  Points few;
  few.scatter = all.scatter;
  few.scatter.x.clear();
  few.scatter.y.clear();
  std::unordered_set<Index> taken;
  for (std::size_t i = 0; i < all.places.size(); ++i) {
    const Index at = cell(all.scatter.y[i], y) * (kGrid + 1) + cell(all.scatter.x[i], x);
    if (!taken.insert(at).second) continue;
    few.scatter.x.push_back(all.scatter.x[i]);
    few.scatter.y.push_back(all.scatter.y[i]);
    few.places.push_back(all.places[i]);
  }
  return few;
}

std::string source_sentence(const QuestWords& words, Index page_size, QuestSemantics semantics) {
  return fmt::format(
      "{}, layer {}, query head {}; pages of {} keys, {} tokens kept by the {} program. Dot "
      "products are unscaled.",
      words.trace, words.layer, words.q_head, page_size, words.budget, program_of(semantics));
}

}  // namespace

std::optional<QuestPlace> QuestCloud::at(std::size_t mark, std::size_t point) const {
  if (mark >= places.size() || point >= places[mark].size()) return std::nullopt;
  return places[mark][point];
}

QuestCloud quest_cloud(const QuestSteps& steps, const QuestPages* selected,
                       std::optional<Index> key, QuestSemantics semantics,
                       const QuestWords& words) {
  Points others, kept, chosen, page, broken;
  for (const QuestPages& step : steps.steps) {
    for (std::size_t slot = 0; slot < step.n_pages(); ++slot) {
      (step.choice(semantics).kept[slot] != 0 ? kept : others).add(step, slot);
      if (step.violated[slot] != 0) broken.add(step, slot);
    }
  }
  if (selected != nullptr) {
    const auto marked = key ? selected->slot_of(*key) : std::nullopt;
    for (std::size_t slot = 0; slot < selected->n_pages(); ++slot) {
      (marked == slot ? page : chosen).add(*selected, slot);
    }
  }
  const std::size_t n_points = others.places.size() + kept.places.size();
  const bool is_thinned = n_points > kMostCloudPoints;
  if (is_thinned) {
    others = thinned(others);
    kept = thinned(kept);
  }
  const std::size_t n_drawn = others.places.size() + kept.places.size();
  const auto set = [](Points& points, std::string label, plot::Tone tone, double size,
                      double opacity) {
    points.scatter.label = std::move(label);
    points.scatter.tone = tone;
    points.scatter.size = size;
    points.scatter.opacity = opacity;
  };
  set(others, "other pages", {plot::Role::neutral, 0}, 0.7, 0.5);
  set(kept, "kept pages", {plot::Role::series, 0}, 0.8, 0.8);
  set(chosen, "pages of the selected query", {plot::Role::highlight, 0}, 0.7, 1.0);
  set(page, "selected page", {plot::Role::highlight, 0}, 2.4, 1.0);
  set(broken, "bound violated", {plot::Role::series, kViolationSlot}, 2.0, 1.0);

  QuestCloud cloud;
  cloud.figure.name = "quest-bounds";
  cloud.figure.span = plot::Span::full;
  plot::Panel panel;
  panel.x.label = "True page maximum, $q·k$";
  panel.y.label = "Bound of the page, $q·k$";
  panel.aspect = 0.7;
  panel.legend = plot::LegendPlace::above;
  const auto put = [&](Points& points) {
    if (points.places.empty()) return;
    panel.marks.emplace_back(std::move(points.scatter));
    cloud.places.resize(panel.marks.size());
    cloud.places.back() = std::move(points.places);
  };
  put(others);
  panel.marks.emplace_back(plot::Rule{plot::Rule::Kind::diagonal, 0.0, "bound = maximum"});
  put(kept);
  put(chosen);
  put(page);
  put(broken);
  cloud.places.resize(panel.marks.size());
  cloud.figure.panels.push_back(std::move(panel));

  auto& caption = cloud.figure.caption;
  const Index page_size = steps.steps.empty() ? 0 : steps.steps.front().page_size;
  caption.push_back(source_sentence(words, page_size, semantics));
  caption.push_back(
      fmt::format("n = {} pages of {} {} positions; {} bounds below the true maximum.", n_points,
                  steps.steps.size(), steps.decoded ? "decoded" : "prompt", steps.violations));
  if (is_thinned) {
    caption.push_back(fmt::format(
        "Drawn: {} of the points, the first in each cell of a {} x {} grid; none of the violations "
        "is left out.",
        n_drawn, kGrid, kGrid));
  }
  return cloud;
}

plot::Figure quest_profile(const QuestPages& pages, std::optional<Index> key,
                           QuestSemantics semantics, const QuestWords& words) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const std::size_t n = pages.n_pages();
  const auto& kept = pages.choice(semantics).kept;
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (std::size_t p = 0; p < n; ++p) {
    low = std::min({low, double{pages.true_max[p]}, double{pages.bound[p]}});
    high = std::max({high, double{pages.true_max[p]}, double{pages.bound[p]}});
  }
  const double room = std::max(0.04 * (high - low), 1e-6);
  const plot::Range y{low - room, high + room};

  plot::Area filled;
  filled.label = "kept pages";
  filled.tone = {plot::Role::series, 0};
  plot::Line bound;
  bound.label = "bound";
  bound.tone = {plot::Role::series, 0};
  plot::Line truth;
  truth.label = "true maximum";
  truth.tone = {plot::Role::reference, 0};
  for (plot::Line* line : {&bound, &truth}) {
    line->steps = true;
    line->markers = false;
  }
  plot::Scatter tops;
  tops.tone = {plot::Role::series, 0};
  tops.size = 0.7;
  plot::Scatter broken;
  broken.label = "bound violated";
  broken.tone = {plot::Role::series, kViolationSlot};
  broken.size = 2.0;
  for (std::size_t p = 0; p < n; ++p) {
    const TokenRange keys = pages.keys_of(p);
    const auto begin = static_cast<double>(keys.begin);
    const auto end = static_cast<double>(keys.end);
    const double u = double{pages.bound[p]};
    bound.x.push_back(begin);
    bound.y.push_back(u);
    truth.x.push_back(begin);
    truth.y.push_back(double{pages.true_max[p]});
    if (pages.violated[p] != 0) {
      broken.x.push_back((begin + end) / 2);
      broken.y.push_back(u);
    }
    if (kept[p] == 0) continue;
    for (const double x : {begin, end, end}) {
      const bool is_gap = filled.x.size() % 3 == 2;
      filled.x.push_back(x);
      filled.low.push_back(is_gap ? kNan : y.low);
      filled.high.push_back(is_gap ? kNan : u);
    }
    tops.x.push_back((begin + end) / 2);
    tops.y.push_back(u);
  }
  for (plot::Line* line : {&bound, &truth}) {
    line->x.push_back(static_cast<double>(pages.visible.end));
    line->y.push_back(line->y.back());
  }
  plot::Scatter best;
  best.label = "truly best page";
  best.tone = {plot::Role::highlight, 0};
  best.size = 1.6;
  const TokenRange best_keys = pages.keys_of(pages.best());
  best.x = {0.5 * static_cast<double>(best_keys.begin + best_keys.end)};
  best.y = {double{pages.true_max[pages.best()]}};

  plot::Figure figure;
  figure.name = "quest-pages";
  figure.span = plot::Span::full;
  plot::Panel panel;
  panel.x.label = fmt::format("Position in the context (pages of {} keys)", pages.page_size);
  panel.x.format = plot::TickFormat::tokens;
  panel.x.range =
      plot::Range{static_cast<double>(pages.visible.begin), static_cast<double>(pages.visible.end)};
  panel.y.label = "$q·k$";
  panel.y.range = y;
  panel.aspect = 0.5;
  panel.legend = plot::LegendPlace::above;
  if (!filled.x.empty()) panel.marks.emplace_back(std::move(filled));
  panel.marks.emplace_back(std::move(truth));
  panel.marks.emplace_back(std::move(bound));
  if (!tops.x.empty()) panel.marks.emplace_back(std::move(tops));
  panel.marks.emplace_back(std::move(best));
  if (key && pages.slot_of(*key)) {
    const TokenRange keys = pages.keys_of(*pages.slot_of(*key));
    plot::Boxes box;
    box.label = "selected page";
    box.x = {{static_cast<double>(keys.begin), static_cast<double>(keys.end)}};
    box.y = {y};
    panel.marks.emplace_back(std::move(box));
  }
  if (!broken.x.empty()) panel.marks.emplace_back(std::move(broken));
  figure.panels.push_back(std::move(panel));
  figure.caption.push_back(source_sentence(words, pages.page_size, semantics));
  figure.caption.push_back(fmt::format(
      "The query at position {}: {} of {} pages kept, with {:.1f} % of the attention; {} bounds "
      "below the true maximum.",
      pages.query, pages.n_kept(semantics), n, 100.0 * pages.choice(semantics).mass,
      pages.violations));
  return figure;
}

std::string quest_csv(std::span<const QuestPages* const> pages, double scale,
                      QuestSemantics semantics) {
  std::string csv = "query,page,first_key,last_key,bound,true_max,gap_logits,kept,violated\n";
  for (const QuestPages* of : pages) {
    for (std::size_t slot = 0; slot < of->n_pages(); ++slot) {
      const TokenRange keys = of->keys_of(slot);
      const double gap = scale * (double{of->bound[slot]} - double{of->true_max[slot]});
      fmt::format_to(std::back_inserter(csv), "{},{},{},{},{:.9g},{:.9g},{:.6g},{},{}\n", of->query,
                     of->first_page + static_cast<Index>(slot), keys.begin, keys.end - 1,
                     of->bound[slot], of->true_max[slot], gap, of->choice(semantics).kept[slot],
                     of->violated[slot]);
    }
  }
  return csv;
}

std::vector<std::string> quest_violations(std::span<const QuestPages* const> pages,
                                          std::size_t most) {
  std::vector<std::string> sentences;
  for (const QuestPages* of : pages) {
    for (std::size_t slot = 0; slot < of->n_pages() && sentences.size() < most; ++slot) {
      if (of->violated[slot] == 0) continue;
      const TokenRange keys = of->keys_of(slot);
      sentences.push_back(fmt::format(
          "query {}, page {} (keys {} to {}): bound {:.9g} below the true maximum {:.9g}",
          of->query, of->first_page + static_cast<Index>(slot), keys.begin, keys.end - 1,
          of->bound[slot], of->true_max[slot]));
    }
  }
  return sentences;
}

}  // namespace kvscope::gui
