// Theorem B.1 on recorded rows: the measured cosine against each of the bounds; a point per row, or
// how many there are where they are many.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/base/mapped.hpp"
#include "analysis/figures/maps.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "core/base/error.hpp"

namespace kvscope {

namespace {

/// A statement that is checked, in the order of the analysis.
struct TheoremBound {
  std::string name;  // of the option metric; its flags are "violated/" and this
  std::string array;
  std::string title;
  bool is_upper = false;  // bounds cos(M_Q, q) from above, the others cos(k*, q) from below
};
const std::vector<TheoremBound>& theorem_bounds() {
  static const std::vector<TheoremBound> all = {
      {"printed", "bounds/printed", "as printed"},
      {"repaired", "bounds/repaired", "norms repaired"},
      {"jensen", "bounds/jensen", "Jensen (proved)"},
      {"worst", "bounds/worst", "worst case (proved)"},
      {"main_text_relaxed", "main_text/relaxed", "main text, as published", true},
      {"main_text_exact", "main_text/exact", "main text, spherical", true}};
  return all;
}

constexpr plot::Range kRange{-1.0, 1.0};
/// A lower bound up to here excludes next to nothing: no cosine is below -1. The form of the paper
/// stays just above it where norms are large, and is not confirmed by never being violated.
constexpr double kSaysNothing = -0.99;

/// What the rows of a panel say of its bound.
struct TheoremRows {
  plot::Scatter all{.size = 0.8, .opacity = 0.75};
  plot::Scatter broken{.label = "violated", .tone = {plot::Role::series, 1}, .size = 1.4};
  std::size_t trivial = 0;  // up to kSaysNothing
  std::size_t above = 0;    // lower bounds above 1, which no cosine reaches
  double gaps = 0.0;        // on the good side of the bound
};

TheoremRows rows_of_bound(const ResultView& result, const TheoremBound& which,
                          const figures::HeadSlots& shown) {
  const figures::ArrayData cosine(result, which.is_upper ? "cos_mean_query" : "cos");
  const figures::ArrayData bound(result, which.array);
  const figures::ArrayData is_violated(result, "violated/" + which.name);
  TheoremRows rows;
  for (Index l : shown.layers) {
    for (Index h : shown.heads) {
      for (Index r = 0; r < cosine.spec.shape[2]; ++r) {
        const double c = cosine(l, h, r);
        const double b = bound(l, h, r);
        if (std::isnan(c) || std::isnan(b)) continue;
        const auto row =
            static_cast<std::size_t>((l * cosine.spec.shape[1] + h) * cosine.spec.shape[2] + r);
        rows.all.add(b, c, row);
        if (is_violated(l, h, r) != 0.0) rows.broken.add(b, c, row);
        rows.trivial += !which.is_upper && b <= kSaysNothing ? 1 : 0;
        rows.above += !which.is_upper && b > 1.0 ? 1 : 0;
        rows.gaps += which.is_upper ? b - c : c - b;
      }
    }
  }
  return rows;
}

/// In the corner where no points lie.
plot::Note note_of(const TheoremRows& rows, bool is_upper) {
  const auto n = static_cast<double>(rows.all.x.size());
  const auto percent = [&](std::size_t some) {
    const double share = 100.0 * static_cast<double>(some) / n;
    return share >= 10.0 ? fmt::format("{:.0f}%", share) : fmt::format("{:.2g}%", share);
  };
  plot::Note note;
  note.text = fmt::format("violated: {} ({})\nmean gap {:.3g}", rows.broken.x.size(),
                          percent(rows.broken.x.size()), rows.gaps / n);
  if (rows.trivial > 0) note.text += fmt::format("\nsays nothing: {}", percent(rows.trivial));
  if (rows.above > 0) note.text += fmt::format("\nabove 1: {}", percent(rows.above));
  const auto n_lines = 1 + std::ranges::count(note.text, '\n');
  note.x = is_upper ? 0.03 : 0.97;
  note.align = is_upper ? plot::Note::Align::left : plot::Note::Align::right;
  note.y = is_upper ? 0.02 : 0.96 - 0.065 * static_cast<double>(n_lines);
  return note;
}

/// The axes, and the side of the diagonal on which the bound fails.
plot::Panel empty_panel(const TheoremBound& bound) {
  plot::Panel panel{
      .title = bound.title,
      .x = {.label =
                bound.is_upper ? "Upper bound on cos($M$, $q$)" : "Lower bound on cos($k$*, $q$)",
            .range = kRange},
      .y = {.label = bound.is_upper ? "Measured cos($M$, $q$)" : "Measured cos($k$*, $q$)",
            .range = kRange},
      .aspect = 1.0};
  const std::vector<double> diagonal = {kRange.low, kRange.high};
  panel.marks.emplace_back(
      plot::Area{.label = "bound violated",
                 .tone = {plot::Role::highlight, 0},
                 .x = diagonal,
                 .low = bound.is_upper ? diagonal : std::vector<double>(2, kRange.low),
                 .high = bound.is_upper ? std::vector<double>(2, kRange.high) : diagonal});
  return panel;
}

plot::Figure make_theorem_b1(const FigureInput& input) {
  const ResultView& result = *input.results[0];
  const figures::HeadSlots shown(result, "cos", input.options);
  auto names = figures::parse_words(input.options.metric);
  if (names.empty()) names = {"printed", "repaired", "jensen"};
  const auto known = mapped<std::string>(theorem_bounds(), &TheoremBound::name);
  const plot::Rule diagonal{plot::Rule::Kind::diagonal, 0.0, "bound = cosine"};

  plot::Figure figure = figures::panels_in_rows(names.size(), 3);
  std::vector<plot::HeatMap> maps;
  std::size_t n_rows = 0;
  std::size_t n_upper = 0;
  for (const std::string& name : names) {
    const TheoremBound& which = theorem_bounds()[figures::metric_slot(name, known)];
    TheoremRows rows = rows_of_bound(result, which, shown);
    n_upper += which.is_upper ? 1 : 0;
    n_rows = rows.all.x.size();
    if (n_rows == 0) {
      throw ConfigError(
          "{}: no row of this selection has a bound: each query sees one key only, or "
          "fewer keys than the rank that was asked for",
          result.name());
    }
    plot::Panel panel = empty_panel(which);
    plot::Note note = note_of(rows, which.is_upper);
    if (n_rows > figures::kMostPoints) {
      maps.push_back(figures::density_of(rows.all.x, rows.all.y, kRange, kRange, 100));
      panel.colour = figures::log_colours("Rows per cell");
      panel.colour->show_bar = figure.panels.size() + 1 == names.size();
      panel.marks.emplace_back(maps.back());
      panel.marks.emplace_back(diagonal);
    } else {
      panel.marks.emplace_back(diagonal);
      panel.marks.emplace_back(std::move(rows.all));
      if (!rows.broken.x.empty()) panel.marks.emplace_back(std::move(rows.broken));
    }
    panel.marks.emplace_back(std::move(note));
    figure.panels.push_back(std::move(panel));
  }
  for (plot::Panel& panel : figure.panels)
    if (panel.colour) panel.colour->axis.range = figures::range_of_counts(maps);
  figure.share_y = n_upper == 0 || n_upper == names.size();
  figure.caption.push_back(
      fmt::format("n = {} query rows over {} layers and {} heads; a bound is violated where the "
                  "cosine lies on its wrong side by more than rounding, as the analysis found.",
                  n_rows, shown.layers.size(), shown.heads.size()));
  if (n_upper < names.size()) {
    figure.caption.emplace_back(
        "A lower bound of −0.99 or less says nothing; below −1 it is drawn there.");
  }
  return figure;
}

}  // namespace

FigureKind figure_theorem_b1() {
  return {
      .name = "theorem-b1",
      .shows =
          "the measured cosine of query and key against Theorem B.1's bounds, printed and repaired",
      .needs = "an analysis of Theorem B.1",
      .command = "kvscope analyze theorem-b1 trace.h5 --out b1.h5",
      .kinds = {"theorem-b1"},
      .options = {"metric", "layers", "heads"},
      .make = make_theorem_b1,
  };
}

}  // namespace kvscope
