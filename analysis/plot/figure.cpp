#include "analysis/plot/figure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"

namespace kvscope::plot {

namespace {

template <class T>
bool any_finite(std::span<const T> values) {
  return std::ranges::any_of(values, [](T v) { return std::isfinite(v); });
}

std::size_t count_pairs(std::span<const double> x, std::span<const double> y) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i)
    n += std::isfinite(x[i]) && std::isfinite(y[i]);
  return n;
}

/// Finite points, and whether the arrays of the mark fit together.
struct Inspect {
  std::size_t n_points = 0;
  bool fits = true;

  void operator()(const Area& m) {
    fits = m.x.size() == m.low.size() && m.x.size() == m.high.size();
  }
  void operator()(const HeatMap& m) {
    fits = m.n_rows > 0 && m.n_cols > 0 &&
           m.values.size() == static_cast<std::size_t>(m.n_rows * m.n_cols);
    n_points = any_finite<float>(m.values) ? m.values.size() : 0;
  }
  void operator()(const Line& m) {
    fits = m.x.size() == m.y.size() && m.low.size() == m.high.size() &&
           (m.low.empty() || m.low.size() == m.x.size()) &&
           (m.of.empty() || m.of.size() == m.x.size());
    n_points = count_pairs(m.x, m.y);
  }
  void operator()(const Scatter& m) {
    fits = m.x.size() == m.y.size() && (m.value.empty() || m.value.size() == m.x.size()) &&
           (m.of.empty() || m.of.size() == m.x.size());
    n_points = count_pairs(m.x, m.y);
  }
  void operator()(const Rule&) {}
  void operator()(const Boxes& m) { fits = m.x.size() == m.y.size(); }
  void operator()(const Note&) {}
};

Inspect inspect(const Mark& mark) {
  Inspect result;
  std::visit(result, mark);
  return result;
}

void check_axis(const Axis& axis, const std::string& where) {
  if (!axis.range) return;
  const bool ordered = std::isfinite(axis.range->low) && std::isfinite(axis.range->high) &&
                       axis.range->low < axis.range->high;
  const bool is_log = axis.scale == ScaleKind::log10 || axis.scale == ScaleKind::log2;
  if (ordered && (!is_log || axis.range->low > 0.0)) return;
  throw ConfigError("{}: the range [{}, {}] cannot be drawn on a {} axis", where, axis.range->low,
                    axis.range->high, is_log ? "logarithmic" : "linear");
}

}  // namespace

std::vector<std::size_t> lone_intervals(const Line& line) {
  const auto has_band = [&](std::size_t i) {
    return i < line.low.size() && std::isfinite(line.x[i]) && std::isfinite(line.low[i]) &&
           std::isfinite(line.high[i]);
  };
  std::vector<std::size_t> lone;
  for (std::size_t i = 0; i < line.low.size(); ++i) {
    // i - 1 of the first point is beyond every end
    if (has_band(i) && !has_band(i - 1) && !has_band(i + 1) && line.high[i] > line.low[i])
      lone.push_back(i);
  }
  return lone;
}

std::size_t count_points(const Mark& mark) {
  return inspect(mark).n_points;
}

void check_figure(const Figure& figure) {
  if (figure.panels.empty()) throw ConfigError("figure {}: there is nothing to draw", figure.name);
  for (std::size_t p = 0; p < figure.panels.size(); ++p) {
    const Panel& panel = figure.panels[p];
    const std::string where =
        fmt::format("figure {}, panel {}{}", figure.name, p + 1,
                    panel.title.empty() ? std::string() : fmt::format(" ({})", panel.title));
    std::size_t n_points = 0;
    for (const Mark& mark : panel.marks) {
      const Inspect result = inspect(mark);
      if (!result.fits) throw ConfigError("{}: the arrays of a mark differ in length", where);
      n_points += result.n_points;
      const bool linear = panel.x.scale == ScaleKind::linear && panel.y.scale == ScaleKind::linear;
      if (std::holds_alternative<HeatMap>(mark) && !linear)
        throw ConfigError("{}: a heat map needs linear axes", where);
    }
    if (n_points == 0) {
      throw ConfigError(
          "{}: nothing to draw: every number of the selection is missing or not finite", where);
    }
    check_axis(panel.x, where + ", x");
    check_axis(panel.y, where + ", y");
    if (panel.colour) check_axis(panel.colour->axis, where + ", colours");
  }
}

}  // namespace kvscope::plot
