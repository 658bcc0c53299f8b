#include "analysis/plot/legend.hpp"

#include <algorithm>
#include <cmath>

#include "analysis/plot/rich_text.hpp"

namespace kvscope::plot {

namespace {

struct EntryOf {
  const Panel& panel;
  LegendEntry operator()(const Area& m) const {
    LegendEntry entry{m.label, m.tone, Symbol::region};
    entry.opacity = m.opacity;
    return entry;
  }
  LegendEntry operator()(const HeatMap& m) const {
    const bool has_masked =
        m.show_masked && std::ranges::any_of(m.values, [](float v) { return !std::isfinite(v); });
    return {has_masked && panel.colour ? panel.colour->masked_label : std::string(),
            {},
            Symbol::masked};
  }
  LegendEntry operator()(const Line& m) const {
    return {m.label, m.tone, m.markers ? Symbol::marked_line : Symbol::line, !m.low.empty(),
            is_dense(m)};
  }
  LegendEntry operator()(const Scatter& m) const { return {m.label, m.tone, Symbol::marker}; }
  LegendEntry operator()(const Rule& m) const { return {m.label, m.tone, Symbol::line}; }
  LegendEntry operator()(const Boxes& m) const { return {m.label, m.tone, Symbol::outline}; }
  LegendEntry operator()(const Note&) const { return {}; }
};

/// Places on the page that hold data: what a legend should not hide.
struct DataPlaces {
  const PanelLayout& layout;
  std::vector<Point> places;

  static constexpr std::size_t kMost = 3000;  // of one mark: enough to see where it is empty

  void along(Point a, Point b) {
    if (!std::isfinite(a.x + a.y + b.x + b.y)) return;
    const double step = 3.0;  // points: less than any legend is high
    const int n = std::min(200, 1 + static_cast<int>(std::hypot(b.x - a.x, b.y - a.y) / step));
    for (int i = 0; i <= n; ++i) {
      const double t = static_cast<double>(i) / n;
      places.push_back({a.x + t * (b.x - a.x), a.y + t * (b.y - a.y)});
    }
  }
  void curve(const std::vector<double>& x, const std::vector<double>& y) {
    const std::size_t stride = 1 + x.size() / kMost;
    if (x.size() == 1) along(layout.place(x[0], y[0]), layout.place(x[0], y[0]));
    for (std::size_t i = stride; i < x.size(); i += stride)
      along(layout.place(x[i - stride], y[i - stride]), layout.place(x[i], y[i]));
  }
  void operator()(const Area&) {}
  void operator()(const HeatMap& m) {
    if (m.show_masked) return;  // covers the whole panel
    const double w = (m.x.high - m.x.low) / static_cast<double>(m.n_cols);
    const double h = (m.y.high - m.y.low) / static_cast<double>(m.n_rows);
    for (std::size_t i = 0; i < m.values.size(); ++i) {
      if (std::isnan(m.values[i])) continue;
      const auto cell = static_cast<Index>(i);
      const double row = static_cast<double>(cell / m.n_cols) + 0.5;
      const double col = static_cast<double>(cell % m.n_cols) + 0.5;
      places.push_back(layout.place(m.x.low + col * w, m.y.low + row * h));
    }
  }
  void operator()(const Line& m) {
    curve(m.x, m.y);
    if (m.low.empty()) return;
    curve(m.x, m.low);
    curve(m.x, m.high);
  }
  void operator()(const Scatter& m) {
    const std::size_t stride = 1 + m.x.size() / kMost;
    for (std::size_t i = 0; i < m.x.size(); i += stride) {
      const Point p = layout.place(m.x[i], m.y[i]);
      if (std::isfinite(p.x + p.y)) places.push_back(p);
    }
  }
  void operator()(const Rule& m) {
    const Range x = layout.x.scale.range();
    const Range y = layout.y.scale.range();
    if (m.kind == Rule::Kind::vertical)
      along(layout.place(m.at, y.low), layout.place(m.at, y.high));
    if (m.kind == Rule::Kind::horizontal)
      along(layout.place(x.low, m.at), layout.place(x.high, m.at));
    if (m.kind == Rule::Kind::diagonal)
      along(layout.place(x.low, x.low), layout.place(x.high, x.high));
  }
  void operator()(const Boxes&) {}
  void operator()(const Note& m) {
    along({layout.frame.x + m.x * layout.frame.w, layout.frame.y + m.y * layout.frame.h},
          {layout.frame.x + (m.x + 0.25) * layout.frame.w, layout.frame.y + m.y * layout.frame.h});
  }
};

double widest(std::span<const LegendEntry> entries, const TextMetrics& metrics, double size) {
  double width = 0.0;
  for (const LegendEntry& entry : entries)
    width = std::max(width, rich_width(metrics, entry.label, size));
  return width;
}

}  // namespace

std::vector<LegendEntry> legend_entries(std::span<const Panel> panels) {
  std::vector<LegendEntry> entries;
  for (const Panel& panel : panels) {
    for (const Mark& mark : panel.marks) {
      LegendEntry entry = std::visit(EntryOf{panel}, mark);
      if (entry.label.empty()) continue;
      const bool known = std::ranges::any_of(
          entries, [&](const LegendEntry& e) { return e.label == entry.label; });
      if (!known) entries.push_back(std::move(entry));
    }
  }
  return entries;
}

LegendLayout legend_above(std::vector<LegendEntry> entries, double left, double top, double width,
                          const Theme& theme, const TextMetrics& metrics) {
  const LegendMetrics lengths(theme);
  LegendLayout legend;
  const std::size_t n = entries.size();
  // the most columns that fit, each as wide as its widest entry; filled column by column
  std::vector<double> widths;
  std::size_t n_rows = n;
  for (std::size_t columns = n; columns >= 1; --columns) {
    n_rows = (n + columns - 1) / columns;
    widths.clear();
    double total = 0.0;
    for (std::size_t first = 0; first < n; first += n_rows) {
      const auto column = std::span(entries).subspan(first, std::min(n_rows, n - first));
      widths.push_back(lengths.symbol_width + lengths.gap +
                       widest(column, metrics, theme.tick_size));
      total += widths.back() + (widths.size() > 1 ? lengths.column_gap : 0.0);
    }
    if (total <= width || columns == 1) {
      legend.frame = {left + std::max(0.0, 0.5 * (width - total)), top, total,
                      static_cast<double>(n_rows) * lengths.line_height};
      break;
    }
  }
  double x = legend.frame.x;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t row = i % n_rows;
    if (i > 0 && row == 0) x += widths[i / n_rows - 1] + lengths.column_gap;
    legend.places.push_back({x, top + (static_cast<double>(row) + 0.5) * lengths.line_height});
  }
  legend.entries = std::move(entries);
  return legend;
}

LegendLayout legend_inside(std::vector<LegendEntry> entries, const Panel& panel,
                           const PanelLayout& layout, const Theme& theme,
                           const TextMetrics& metrics) {
  const LegendMetrics lengths(theme);
  const double pad = 0.4 * theme.tick_size;
  const double inset = 0.5 * theme.tick_size;
  const double w =
      lengths.symbol_width + lengths.gap + widest(entries, metrics, theme.tick_size) + 2.0 * pad;
  const double h = static_cast<double>(entries.size()) * lengths.line_height + 2.0 * pad;
  DataPlaces data{layout, {}};
  for (const Mark& mark : panel.marks) std::visit(data, mark);
  const Rect& frame = layout.frame;
  const double lefts[] = {frame.right() - w - inset, frame.x + inset,
                          frame.x + 0.5 * (frame.w - w)};
  const double tops[] = {frame.y + inset, frame.bottom() - h - inset,
                         frame.y + 0.5 * (frame.h - h)};
  LegendLayout legend{.boxed = true};
  std::ptrdiff_t fewest = -1;
  for (double top : tops) {
    for (double left : lefts) {
      const Rect box{left, top, w, h};
      const double room = theme.marker_radius;
      const Rect around{left - room, top - room, w + 2.0 * room, h + 2.0 * room};
      const auto hidden =
          std::ranges::count_if(data.places, [&](Point p) { return around.contains(p); });
      if (fewest >= 0 && hidden >= fewest) continue;
      fewest = hidden;
      legend.frame = box;
    }
  }
  legend.hides_data = fewest > 0 || w + inset > frame.w || h + inset > frame.h;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    legend.places.push_back(
        {legend.frame.x + pad,
         legend.frame.y + pad + (static_cast<double>(i) + 0.5) * lengths.line_height});
  }
  legend.entries = std::move(entries);
  return legend;
}

}  // namespace kvscope::plot
