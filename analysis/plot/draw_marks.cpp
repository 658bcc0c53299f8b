#include "analysis/plot/draw_marks.hpp"

#include <algorithm>
#include <cmath>

#include "analysis/plot/cells.hpp"
#include "analysis/plot/draw.hpp"
#include "analysis/plot/raster.hpp"
#include "analysis/plot/rich_text.hpp"
#include "core/base/lists.hpp"

namespace kvscope::plot {

namespace {

bool is_placed(Point p) {
  return std::isfinite(p.x) && std::isfinite(p.y);
}

/// Curves without gaps, from data that may have some.
std::vector<std::vector<Point>> pieces_of(const PanelLayout& layout, std::span<const double> x,
                                          std::span<const double> y, bool steps) {
  std::vector<std::vector<Point>> pieces(1);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Point p = layout.place(x[i], y[i]);
    if (!is_placed(p)) {
      if (!pieces.back().empty()) pieces.emplace_back();
      continue;
    }
    if (steps && !pieces.back().empty()) pieces.back().push_back({p.x, pieces.back().back().y});
    pieces.back().push_back(p);
  }
  if (pieces.back().empty()) pieces.pop_back();
  return pieces;
}

/// Keeps first, lowest, highest and last point of each column a quarter point wide.
std::vector<Point> fold(const std::vector<Point>& points, double frame_width) {
  constexpr double kColumn = 0.25;
  if (static_cast<double>(points.size()) < 8.0 * frame_width / kColumn) return points;
  std::vector<Point> out;
  for (std::size_t first = 0; first < points.size();) {
    const double column = std::floor(points[first].x / kColumn);
    std::size_t last = first;
    std::size_t low = first;
    std::size_t high = first;
    while (last + 1 < points.size() && std::floor(points[last + 1].x / kColumn) == column) {
      ++last;
      if (points[last].y < points[low].y) low = last;
      if (points[last].y > points[high].y) high = last;
    }
    std::size_t kept[] = {first, std::min(low, high), std::max(low, high), last};
    for (std::size_t i = 0; i < 4; ++i) {
      if (i == 0 || kept[i] != kept[i - 1]) out.push_back(points[kept[i]]);
    }
    first = last + 1;
  }
  return out;
}

constexpr double kNoteLine = 1.25;  // from line to line, in sizes

double width_of_note(const std::string& text, double size, const TextMetrics& metrics) {
  double width = 0.0;
  for (const std::string& line : split_words(text, '\n'))
    width = std::max(width, rich_width(metrics, line, size));
  return width;
}

double height_of_note(const std::string& text, double size) {
  const auto n_lines = 1 + std::ranges::count(text, '\n');
  return kNoteLine * size * (static_cast<double>(n_lines) + 0.3);
}

class MarkPainter {
 public:
  MarkPainter(const Panel& panel, const PanelLayout& layout, const Theme& theme, Canvas& canvas)
      : panel_(panel), layout_(layout), theme_(theme), canvas_(canvas) {}

  void operator()(const Area& m) {
    fill_between(m.x, m.low, m.high, with_alpha(theme_.style_of(m.tone).colour, m.opacity));
  }

  void operator()(const HeatMap& m) {
    const Point a = layout_.place(m.x.low, m.y.low);
    const Point b = layout_.place(m.x.high, m.y.high);
    const ColourMap map = panel_.colour ? panel_.colour->map : ColourMap::sequential;
    // row 0 lies at y.low, which is the bottom of the page unless the axis is reversed
    const Image image = heat_map_image(
        m, layout_.colour, map, m.show_masked ? theme_.masked : with_alpha(theme_.ground, 0.0),
        a.x > b.x, a.y > b.y);
    const Rect rect{std::min(a.x, b.x), std::min(a.y, b.y), std::abs(b.x - a.x),
                    std::abs(b.y - a.y)};
    canvas_.image(rect, image);
    if (!m.print_values) return;
    for (const auto& [from, to] : cell_borders(m, layout_)) {
      const Point ends[] = {from, to};
      canvas_.polyline(ends, {theme_.ground, theme_.rule_width});
    }
    for (const PlacedText& number : cell_numbers(m, panel_, layout_, theme_, canvas_.metrics()))
      draw_rich(canvas_, number.at, number.text, number.style);
  }

  void operator()(const Line& m) {
    const SeriesStyle style = theme_.style_of(m.tone);
    const auto pieces = pieces_of(layout_, m.x, m.y, m.steps);
    for (const auto& piece : pieces) {
      if (piece.size() < 2) continue;
      canvas_.polyline(fold(piece, layout_.frame.w),
                       {style.colour, (is_dense(m) ? 0.75 : 1.0) * theme_.line_width,
                        is_dense(m) ? Dash::solid : style.dash});
    }
    if (!m.markers) {
      lone_points(pieces, style);
      return;
    }
    std::vector<Point> places;
    for (std::size_t i = 0; i < m.x.size(); ++i) {
      const Point p = layout_.place(m.x[i], m.y[i]);
      if (is_placed(p)) places.push_back(p);
    }
    canvas_.markers(is_dense(m) ? some_of(places, m.tone.slot) : places, style.marker,
                    theme_.marker_radius, style.colour);
  }

  /// Bands lie below all curves; the more there are, the paler.
  void bands() {
    const auto n = std::ranges::count_if(panel_.marks, [](const Mark& mark) {
      const Line* line = std::get_if<Line>(&mark);
      return line != nullptr && !line->low.empty();
    });
    const double alpha =
        theme_.band_alpha * (n > 4 ? std::max(0.45, 4.0 / static_cast<double>(n)) : 1.0);
    for (const Mark& mark : panel_.marks) {
      const Line* line = std::get_if<Line>(&mark);
      if (line == nullptr || line->low.empty()) continue;
      const Colour colour = theme_.style_of(line->tone).colour;
      fill_between(line->x, line->low, line->high, with_alpha(colour, alpha));
      for (const std::size_t i : lone_intervals(*line)) {
        const Point ends[] = {layout_.place(line->x[i], line->low[i]),
                              layout_.place(line->x[i], line->high[i])};
        if (is_placed(ends[0]) && is_placed(ends[1]))
          canvas_.polyline(ends, {colour, theme_.line_width, Dash::solid});
      }
    }
  }

  void operator()(const Scatter& m) {
    const SeriesStyle style = theme_.style_of(m.tone);
    std::vector<Point> places;
    std::vector<Colour> colours;
    for (std::size_t i = 0; i < m.x.size(); ++i) {
      const Point p = layout_.place(m.x[i], m.y[i]);
      if (!is_placed(p) || (!m.value.empty() && std::isnan(m.value[i]))) continue;
      places.push_back(p);
      if (m.value.empty() || !panel_.colour) continue;
      const double unit = layout_.colour.to_unit(m.value[i]);
      colours.push_back(with_alpha(theme_.point_colour(panel_.colour->map, unit), m.opacity));
    }
    if (colours.empty()) colours.push_back(with_alpha(style.colour, m.opacity));
    const double radius = theme_.marker_radius * m.size;
    if (places.size() > kMostVectorMarkers) {
      canvas_.image(layout_.frame, cloud_image(places, colours, radius, layout_.frame,
                                               canvas_.pixels_per_point()));
    } else if (colours.size() == 1) {
      canvas_.markers(places, style.marker, radius, colours[0]);
    } else {
      for (std::size_t i = 0; i < places.size(); ++i)
        canvas_.markers({&places[i], 1}, style.marker, radius, colours[i]);
    }
  }

  void operator()(const Rule& m) {
    const SeriesStyle style = theme_.style_of(m.tone);
    const Range x = layout_.x.scale.range();
    const Range y = layout_.y.scale.range();
    std::vector<Point> ends;
    if (m.kind == Rule::Kind::vertical)
      ends = {layout_.place(m.at, y.low), layout_.place(m.at, y.high)};
    if (m.kind == Rule::Kind::horizontal)
      ends = {layout_.place(x.low, m.at), layout_.place(x.high, m.at)};
    if (m.kind == Rule::Kind::diagonal) {
      // straight in data coordinates; sampled, since the scales may differ
      const Scale both(layout_.x.scale.kind(), {std::max(x.low, y.low), std::min(x.high, y.high)});
      for (int i = 0; i <= 32; ++i) {
        const double v = both.from_unit(i / 32.0);
        ends.push_back(layout_.place(v, v));
      }
    }
    if (std::ranges::all_of(ends, is_placed))
      canvas_.polyline(ends, {style.colour, 0.75 * theme_.line_width, style.dash});
  }

  void operator()(const Boxes& m) {
    const Colour colour = theme_.style_of(m.tone).colour;
    for (std::size_t i = 0; i < m.x.size(); ++i) {
      const Point a = layout_.place(m.x[i].low, m.y[i].low);
      const Point b = layout_.place(m.x[i].high, m.y[i].high);
      const std::vector<Point> corners = {
          {a.x, a.y}, {b.x, a.y}, {b.x, b.y}, {a.x, b.y}, {a.x, a.y}};
      const double width = box_width(std::abs(b.x - a.x), std::abs(b.y - a.y), theme_);
      // a pale edge below keeps the outline visible on every cell colour
      canvas_.polyline(corners, {with_alpha(theme_.ground, 0.85), 1.8 * width});
      canvas_.polyline(corners, {colour, width});
    }
  }

  void operator()(Note m) {
    const Rect& frame = layout_.frame;
    Point at{frame.x + m.x * frame.w, frame.y + m.y * frame.h};
    const FittedNote fitted = fit_note(m, frame, theme_, canvas_.metrics());
    const double size = fitted.size;
    if (size == 0.0) return;
    m.text = fitted.text;
    TextStyle style{size, theme_.ink, Align::left};
    if (m.align == Note::Align::right) style.align = Align::right;
    if (m.align == Note::Align::centre) style.align = Align::centre;
    // in a small frame a note moves until it is inside
    at.y = std::max(frame.y, std::min(at.y, frame.bottom() - note_height(m, size)));
    if (m.room_x > 0.0) {
      const double pad = 0.15 * size;
      const double width = note_width(m, size) + 2.0 * pad;
      const double left = style.align == Align::right    ? at.x - width + pad
                          : style.align == Align::centre ? at.x - 0.5 * width
                                                         : at.x - pad;
      const double top = at.y + pad;
      const double bottom = at.y + note_height(m, size) - 0.25 * size;
      canvas_.polygon(
          std::vector<Point>{
              {left, top}, {left + width, top}, {left + width, bottom}, {left, bottom}},
          with_alpha(theme_.ground, 0.75));
    }
    for (const std::string& line : split_words(m.text, '\n')) {
      at.y += kNoteLine * size;
      const double w = rich_width(canvas_.metrics(), line, size);
      const double before = style.align == Align::left     ? 0.0
                            : style.align == Align::centre ? 0.5 * w
                                                           : w;
      const double least = frame.x + before;
      const double x = std::clamp(at.x, least, std::max(least, frame.right() - w + before));
      draw_rich(canvas_, {x, at.y - canvas_.metrics().descent() * size}, line, style);
    }
  }

 private:
  double note_width(const Note& m, double size) const {
    return width_of_note(m.text, size, canvas_.metrics());
  }
  static double note_height(const Note& m, double size) { return height_of_note(m.text, size); }

  void fill_between(std::span<const double> x, std::span<const double> low,
                    std::span<const double> high, Colour fill) {
    std::vector<Point> upper;
    std::vector<Point> lower;
    const auto close = [&] {
      if (upper.size() >= 2) {
        std::vector<Point> outline = fold(upper, layout_.frame.w);
        const std::vector<Point> back = fold(lower, layout_.frame.w);
        outline.insert(outline.end(), back.rbegin(), back.rend());
        canvas_.polygon(outline, fill);
      }
      upper.clear();
      lower.clear();
    };
    for (std::size_t i = 0; i < x.size(); ++i) {
      const Point a = layout_.place(x[i], low[i]);
      const Point b = layout_.place(x[i], high[i]);
      if (!is_placed(a) || !is_placed(b)) {
        close();
        continue;
      }
      lower.push_back(a);
      upper.push_back(b);
    }
    close();
  }

  /// Six places along a curve, shifted by series so that markers of close curves stand apart.
  static std::vector<Point> some_of(const std::vector<Point>& places, int slot) {
    constexpr std::size_t kMarkers = 6;
    std::vector<Point> some;
    const std::size_t stride = std::max<std::size_t>(1, places.size() / kMarkers);
    const std::size_t shift = stride * static_cast<std::size_t>(slot % 5 + 1) / 6;
    for (std::size_t i = shift; i < places.size(); i += stride) some.push_back(places[i]);
    return some;
  }

  /// Points between two gaps have no line to be seen by.
  void lone_points(const std::vector<std::vector<Point>>& pieces, const SeriesStyle& style) {
    std::vector<Point> lone;
    for (const auto& piece : pieces) {
      if (piece.size() == 1) lone.push_back(piece[0]);
    }
    if (!lone.empty())
      canvas_.markers(lone, style.marker, 0.7 * theme_.marker_radius, style.colour);
  }

  const Panel& panel_;
  const PanelLayout& layout_;
  const Theme& theme_;
  Canvas& canvas_;
};

}  // namespace

FittedNote fit_note(const Note& note, const Rect& frame, const Theme& theme,
                    const TextMetrics& metrics) {
  const double usual = theme.tick_size;
  if (note.room_x == 0.0) return {note.text, usual};
  for (std::string text = note.text;; text.resize(text.rfind('\n'))) {
    const double fits = std::min(note.room_x * frame.w / width_of_note(text, 1.0, metrics),
                                 note.room_y * frame.h / height_of_note(text, 1.0));
    if (fits >= 0.75 * usual) return {text, std::min(fits, usual)};
    if (text.find('\n') == text.npos) return {};
  }
}

void draw_marks(const Panel& panel, const PanelLayout& layout, const Theme& theme, Canvas& canvas) {
  MarkPainter painter(panel, layout, theme, canvas);
  painter.bands();
  for (const Mark& mark : panel.marks) std::visit(painter, mark);
}

}  // namespace kvscope::plot
