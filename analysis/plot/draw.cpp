#include "analysis/plot/draw.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/plot/draw_marks.hpp"
#include "analysis/plot/rich_text.hpp"

namespace kvscope::plot {

namespace {

class FigurePainter {
 public:
  FigurePainter(const Theme& theme, Canvas& canvas) : theme_(theme), canvas_(canvas) {}

  void panel(const Panel& panel, const PanelLayout& layout) {
    const Rect& frame = layout.frame;
    const bool is_map = std::ranges::any_of(
        panel.marks, [](const Mark& mark) { return std::holds_alternative<HeatMap>(mark); });
    if (panel.grid && !is_map) grid(layout);
    // markers on the edge of the data may reach a little beyond the frame
    const double room = is_map ? 0.0 : 0.5 * theme_.marker_radius;
    canvas_.push_clip({frame.x - room, frame.y - room, frame.w + 2 * room, frame.h + 2 * room});
    draw_marks(panel, layout, theme_, canvas_);
    canvas_.pop_clip();
    axes(layout, is_map);
    if (layout.bar) bar(*layout.bar, panel.colour->map, is_map);
    if (layout.legend) legend(*layout.legend);
  }

  void legend(const LegendLayout& legend) {
    canvas_.begin_group("legend");
    if (legend.boxed) {
      canvas_.fill_rect(legend.frame, with_alpha(theme_.ground, 0.86));
      outline(legend.frame, theme_.grid);
    }
    const LegendMetrics lengths(theme_);
    for (std::size_t i = 0; i < legend.entries.size(); ++i) {
      symbol(legend.entries[i], legend.places[i], lengths);
      const Point at{legend.places[i].x + lengths.symbol_width + lengths.gap,
                     legend.places[i].y + 0.36 * theme_.tick_size};
      draw_rich(canvas_, at, legend.entries[i].label, {theme_.tick_size, theme_.ink});
    }
    canvas_.end_group();
  }

 private:
  void line(Point a, Point b, Colour colour, double width) {
    const Point ends[] = {a, b};
    canvas_.polyline(ends, {colour, width});
  }

  void outline(const Rect& r, Colour colour) {
    const Point corners[] = {
        {r.x, r.y}, {r.right(), r.y}, {r.right(), r.bottom()}, {r.x, r.bottom()}, {r.x, r.y}};
    canvas_.polyline(corners, {colour, theme_.rule_width});
  }

  void grid(const PanelLayout& layout) {
    const Rect& frame = layout.frame;
    for (const PlacedTick& tick : layout.x.ticks)
      line({tick.at, frame.y}, {tick.at, frame.bottom()}, theme_.grid, theme_.grid_width);
    for (const PlacedTick& tick : layout.y.ticks)
      line({frame.x, tick.at}, {frame.right(), tick.at}, theme_.grid, theme_.grid_width);
  }

  /// Maps are framed; curves stand on two lines, left and below.
  void axes(const PanelLayout& layout, bool framed) {
    const Rect& frame = layout.frame;
    if (framed) {
      outline(frame, theme_.ink);
    } else {
      const Point corner[] = {
          {frame.x, frame.y}, {frame.x, frame.bottom()}, {frame.right(), frame.bottom()}};
      canvas_.polyline(corner, {theme_.ink, theme_.rule_width});
    }
    const double length = theme_.tick_length;
    const double size = theme_.tick_size;
    for (double x : layout.x.minor) {
      line({x, frame.bottom()}, {x, frame.bottom() + 0.6 * length}, theme_.ink,
           0.7 * theme_.rule_width);
    }
    for (double y : layout.y.minor)
      line({frame.x - 0.6 * length, y}, {frame.x, y}, theme_.ink, 0.7 * theme_.rule_width);
    for (const PlacedTick& tick : layout.x.ticks) {
      line({tick.at, frame.bottom()}, {tick.at, frame.bottom() + length}, theme_.ink,
           theme_.rule_width);
      if (!layout.x.labelled) continue;
      draw_rich(canvas_, {tick.at, frame.bottom() + length + 0.3 * size + 0.78 * size}, tick.label,
                {size, theme_.ink, Align::centre});
    }
    for (const PlacedTick& tick : layout.y.ticks) {
      line({frame.x - length, tick.at}, {frame.x, tick.at}, theme_.ink, theme_.rule_width);
      if (!layout.y.labelled) continue;
      draw_rich(canvas_, {frame.x - length - 0.3 * size, tick.at + 0.36 * size}, tick.label,
                {size, theme_.ink, Align::right});
    }
  }

  void bar(const ColourBarLayout& bar, ColourMap map, bool is_map) {
    Image ramp{1, 256, {}};
    for (int i = 255; i >= 0; --i) {
      const double unit = i / 255.0;
      const Colour colour = is_map ? colour_at(map, unit) : theme_.point_colour(map, unit);
      ramp.rgba.insert(ramp.rgba.end(), {colour.r, colour.g, colour.b, 255});
    }
    canvas_.image(bar.rect, ramp);
    outline(bar.rect, theme_.ink);
    for (const PlacedTick& tick : bar.ticks) {
      line({bar.rect.right(), tick.at}, {bar.rect.right() + theme_.tick_length, tick.at},
           theme_.ink, theme_.rule_width);
      draw_rich(canvas_,
                {bar.rect.right() + theme_.tick_length + 0.3 * theme_.tick_size,
                 tick.at + 0.36 * theme_.tick_size},
                tick.label, {theme_.tick_size, theme_.ink});
    }
  }

  void symbol(const LegendEntry& entry, Point at, const LegendMetrics& lengths) {
    const SeriesStyle style = theme_.style_of(entry.tone);
    const double w = lengths.symbol_width;
    const double h = 0.7 * theme_.tick_size;
    const Rect patch{at.x + 0.2 * w, at.y - 0.5 * h, 0.6 * w, h};
    const Point middle{at.x + 0.5 * w, at.y};
    const bool is_line = entry.symbol == Symbol::line || entry.symbol == Symbol::marked_line;
    if (entry.has_band)
      canvas_.fill_rect({at.x, at.y - 0.5 * h, w, h}, with_alpha(style.colour, theme_.band_alpha));
    if (is_line) {
      const Point ends[] = {at, {at.x + w, at.y}};
      canvas_.polyline(ends,
                       {style.colour, theme_.line_width, entry.solid ? Dash::solid : style.dash});
    }
    if (entry.symbol == Symbol::marked_line || entry.symbol == Symbol::marker)
      canvas_.markers({&middle, 1}, style.marker, theme_.marker_radius, style.colour);
    if (entry.symbol == Symbol::patch) canvas_.fill_rect(patch, style.colour);
    if (entry.symbol == Symbol::region) {
      canvas_.fill_rect(patch, with_alpha(style.colour, entry.opacity));
      outline(patch, with_alpha(style.colour, 0.4));
    }
    if (entry.symbol == Symbol::outline) outline(patch, style.colour);
    if (entry.symbol == Symbol::masked) {
      canvas_.fill_rect(patch, theme_.masked);
      outline(patch, theme_.muted);
    }
  }

  const Theme& theme_;
  Canvas& canvas_;
};

}  // namespace

void draw_figure(const Figure& figure, const Layout& layout, const Theme& theme, Canvas& canvas,
                 PageFill page) {
  FigurePainter painter(theme, canvas);
  canvas.begin_group("figure");
  // beyond the page's edges, so that a last pixel row that is only partly page is filled, too
  if (page == PageFill::fill)
    canvas.fill_rect({-1.0, -1.0, layout.size.w + 2.0, layout.size.h + 2.0}, theme.ground);
  for (std::size_t p = 0; p < figure.panels.size(); ++p) {
    canvas.begin_group(fmt::format("panel-{}", p + 1));
    painter.panel(figure.panels[p], layout.panels[p]);
    canvas.end_group();
  }
  if (layout.legend) painter.legend(*layout.legend);
  canvas.begin_group("labels");
  for (const PlacedText& words : layout.words) draw_rich(canvas, words.at, words.text, words.style);
  canvas.end_group();
  canvas.end_group();
}

}  // namespace kvscope::plot
