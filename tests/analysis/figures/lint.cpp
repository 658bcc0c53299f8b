#include "tests/analysis/figures/lint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/plot/clean_figure.hpp"
#include "analysis/plot/draw.hpp"
#include "analysis/plot/font_metrics.hpp"
#include "analysis/plot/legible.hpp"
#include "analysis/plot/rich_text.hpp"
#include "tests/analysis/plot/recording_canvas.hpp"
#include "tests/support/temp_dir.hpp"

namespace kvscope::testing {

namespace {

using namespace plot;

/// What a figure may do though a check names it: the figure ("" = any), at which width (own = any),
/// a part of the fault, and why it is right.
struct Exception {
  std::string_view figure;
  Width width;
  std::string_view fault;
  std::string_view why;
};
constexpr Exception kExceptions[] = {
    {"", Width::own, "marks of #e69f00",
     "Okabe and Ito's; darker it is vermillion to deuteranopes (OKLab 0.014 apart)"},
    {"ladder", Width::column, "higher than a page",
     "made for the page: in a column its panels of fourteen names stand below each other"},
};

constexpr double kPageHeight = 9.0 * 72.0;  // of text, in points
constexpr double kTouch = 0.4;              // boxes of letters are a little larger than their ink
constexpr double kWordContrast = 4.5;
constexpr double kMarkContrast = 3.0;

Rect grown(const Rect& r, double by) {
  return {r.x - by, r.y - by, r.w + 2.0 * by, r.h + 2.0 * by};
}

bool overlap(const Rect& a, const Rect& b) {
  return a.x < b.right() && b.x < a.right() && a.y < b.bottom() && b.y < a.bottom();
}

/// The pixel under a point of the page.
Colour pixel_at(const Painted& image, Point p) {
  const auto at = [](double unit, int n) {
    return std::clamp(static_cast<int>(unit * n), 0, n - 1);
  };
  const int col = at((p.x - image.rect.x) / image.rect.w, image.image.width);
  const int row = at((p.y - image.rect.y) / image.rect.h, image.image.height);
  const auto* rgba = &image.image.rgba[4 * (row * image.image.width + col)];
  return {rgba[0], rgba[1], rgba[2], rgba[3] / 255.0};
}

/// By the edges that a ray to the right crosses.
bool is_inside(Point p, const std::vector<Point>& corners) {
  bool inside = false;
  for (std::size_t i = 0, before = corners.size() - 1; i < corners.size(); before = i++) {
    const Point a = corners[before], b = corners[i];
    if ((a.y > p.y) != (b.y > p.y) && p.x < a.x + (p.y - a.y) / (b.y - a.y) * (b.x - a.x))
      inside = !inside;
  }
  return inside;
}

/// Points of a mark that a box would hide: those of its lines at every half point of length.
bool hides(const Rect& box, const Painted& mark) {
  const auto in = [&](Point p, double room) { return grown(box, room).contains(p); };
  switch (mark.what) {
    case Painted::What::markers:
      return std::ranges::any_of(mark.points, [&](Point p) { return in(p, 0.5 * mark.size); });
    case Painted::What::rect:
      return overlap(box, mark.rect);
    case Painted::What::line:
      for (std::size_t i = 1; i < mark.points.size(); ++i) {
        const Point a = mark.points[i - 1];
        const Point b = mark.points[i];
        const int n = 1 + static_cast<int>(2.0 * std::hypot(b.x - a.x, b.y - a.y));
        for (int k = 0; k <= n; ++k) {
          const double t = static_cast<double>(k) / n;
          if (in({a.x + t * (b.x - a.x), a.y + t * (b.y - a.y)}, 0.0)) return true;
        }
      }
      return false;
    case Painted::What::image:
      for (int i = 0; i <= 20; ++i) {
        for (int k = 0; k <= 20; ++k) {
          const Point p{box.x + box.w * i / 20.0, box.y + box.h * k / 20.0};
          if (mark.rect.contains(p) && pixel_at(mark, p).alpha > 0.0) return true;
        }
      }
      return false;
    case Painted::What::polygon:  // bands and regions lie behind
    case Painted::What::text:
      return false;
  }
  return false;
}

const Tone* tone_of(const Mark& mark) {
  return std::visit(
      []<class M>(const M& m) -> const Tone* {
        if constexpr (std::is_same_v<M, Scatter>) return m.value.empty() ? &m.tone : nullptr;
        if constexpr (std::is_same_v<M, Area>) return nullptr;  // behind what is read
        if constexpr (requires { m.tone; }) return &m.tone;
        return nullptr;
      },
      mark);
}

class Linter {
 public:
  Linter(const Figure& figure, const Layout& layout, const Theme& theme,
         const RecordingCanvas& canvas, Width width)
      : figure_(figure), layout_(layout), theme_(theme), canvas_(canvas), width_(width) {}

  std::vector<std::string> look() {
    if (layout_.size.h > kPageHeight) fault("{:.0f} pt are higher than a page", layout_.size.h);
    words();
    for (std::size_t p = 0; p < figure_.panels.size(); ++p) {
      const PanelLayout& panel = layout_.panels[p];
      name_ticks(figure_.panels[p].x, panel.x);
      name_ticks(figure_.panels[p].y, panel.y);
      if (panel.x.labelled) spaces(panel.x.ticks);
      room_for_words(p);
      for (const Mark& mark : figure_.panels[p].marks) {
        if (const auto* line = std::get_if<Line>(&mark)) intervals(*line, p);
        const Tone* tone = tone_of(mark);
        if (tone == nullptr) continue;
        const Colour colour = theme_.style_of(*tone).colour;
        const double found = contrast(colour, theme_.ground);
        if (found < kMarkContrast)
          fault("marks of {} have a contrast of {:.2f}", hex(colour), found);
      }
    }
    return std::move(faults_);
  }

 private:
  template <class... Parts>
  void fault(fmt::format_string<Parts...> words, Parts&&... parts) {
    std::string said = fmt::format(words, std::forward<Parts>(parts)...);
    const bool is_known = std::ranges::any_of(kExceptions, [&](const Exception& one) {
      return (one.figure.empty() || one.figure == figure_.name) &&
             (one.width == Width::own || one.width == width_) &&
             said.find(one.fault) != std::string::npos;
    });
    if (!is_known && std::ranges::find(faults_, said) == faults_.end())
      faults_.push_back(std::move(said));
  }

  void words() {
    const auto& calls = canvas_.calls();
    const Rect page = grown({0.0, 0.0, layout_.size.w, layout_.size.h}, kTouch);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const Painted& one = calls[i];
      if (one.what != Painted::What::text || one.text.empty()) continue;
      if (!page.contains({one.rect.x, one.rect.y}) ||
          !page.contains({one.rect.right(), one.rect.bottom()})) {
        fault("\"{}\" leaves the page", one.text);
      }
      for (std::size_t k = 0; k < i; ++k) {
        const Painted& other = calls[k];
        if (other.what == Painted::What::text && !other.text.empty() &&
            overlap(grown(one.rect, -kTouch), grown(other.rect, -kTouch)))
          fault("\"{}\" lies over \"{}\"", one.text, other.text);
      }
      const double found = contrast_at(i);
      if (found < kWordContrast) fault("\"{}\" has a contrast of {:.2f}", one.text, found);
    }
  }

  /// The least of words with what was painted before them, at their corners and middle.
  double contrast_at(std::size_t word) const {
    const Painted& text = canvas_.calls()[word];
    const Rect r = grown(text.rect, -kTouch);
    double least = 21.0;
    for (const Point p : {r.centre(), Point{r.x, r.y}, Point{r.right(), r.y},
                          Point{r.x, r.bottom()}, Point{r.right(), r.bottom()}}) {
      Colour ground = theme_.ground;
      for (std::size_t i = 0; i < word; ++i) {
        const Painted& below = canvas_.calls()[i];
        if (below.clip && !below.clip->contains(p)) continue;
        if (below.what == Painted::What::polygon && is_inside(p, below.points))
          ground = blend(below.colour, ground);
        if (!below.rect.contains(p)) continue;
        if (below.what == Painted::What::rect) ground = blend(below.colour, ground);
        if (below.what == Painted::What::image) ground = blend(pixel_at(below, p), ground);
      }
      least = std::min(least, contrast(text.colour, ground));
    }
    return least;
  }

  /// Ticks that the figure itself has named: none is left out.
  void name_ticks(const Axis& axis, const AxisLayout& out) {
    if (!out.labelled) return;
    for (std::size_t i = 0; i < out.ticks.size() && i < axis.ticks.size(); ++i) {
      const std::string& name = axis.ticks[i].label;
      const bool is_name = axis.has_names || name.find_first_of("0123456789") == std::string::npos;
      if (!name.empty() && is_name && out.ticks[i].label.empty()) fault("\"{}\" is left out", name);
    }
  }

  void spaces(std::vector<PlacedTick> ticks) {
    std::erase_if(ticks, [](const PlacedTick& tick) { return tick.label.empty(); });
    std::ranges::sort(ticks, {}, &PlacedTick::at);
    const TextMetrics& metrics = canvas_.metrics();
    for (std::size_t i = 1; i < ticks.size(); ++i) {
      const double widths = rich_width(metrics, ticks[i].label, theme_.tick_size) +
                            rich_width(metrics, ticks[i - 1].label, theme_.tick_size);
      if (ticks[i].at - ticks[i - 1].at - 0.5 * widths < metrics.width(" ", theme_.tick_size))
        fault("\"{}\" is nearer to \"{}\" than a space", ticks[i].label, ticks[i - 1].label);
    }
  }

  bool is_of(const Painted& call, std::size_t panel) const {
    return call.is_clipped && call.group == fmt::format("panel-{}", panel + 1);
  }

  /// Legends and notes stand where no mark is; numbers in cells and names of tiles stand on them.
  void room_for_words(std::size_t p) {
    const PanelLayout& panel = layout_.panels[p];
    const auto over_marks = [&](const Rect& box, const std::string& what) {
      const bool is_over = std::ranges::any_of(
          canvas_.calls(), [&](const Painted& mark) { return is_of(mark, p) && hides(box, mark); });
      if (is_over) fault("{} lies over marks", what);
    };
    if (panel.legend && panel.legend->boxed)
      over_marks(panel.legend->frame,
                 fmt::format("the legend with \"{}\"", panel.legend->entries.front().label));
    for (const Painted& note : canvas_.calls()) {
      if (note.what != Painted::What::text || note.text.empty() || !is_of(note, p)) continue;
      const Rect frame = grown(panel.frame, kTouch);
      if (!frame.contains({note.rect.x, note.rect.y}) ||
          !frame.contains({note.rect.right(), note.rect.bottom()}))
        fault("\"{}\" is cut off by its panel", note.text);
      const bool is_on_map = std::ranges::any_of(canvas_.calls(), [&](const Painted& map) {
        return map.what == Painted::What::image && is_of(map, p) && overlap(map.rect, note.rect);
      });
      if (!is_on_map) over_marks(grown(note.rect, -kTouch), fmt::format("\"{}\"", note.text));
    }
  }

  void intervals(const Line& line, std::size_t p) {
    const PanelLayout& panel = layout_.panels[p];
    const auto is_inked = [&](Point a, Point b) {
      return std::ranges::any_of(canvas_.calls(), [&](const Painted& call) {
        const auto has = [&](Point end) {
          return std::ranges::any_of(
              call.points, [&](Point q) { return std::hypot(q.x - end.x, q.y - end.y) < kTouch; });
        };
        return is_of(call, p) &&
               (call.what == Painted::What::line || call.what == Painted::What::polygon) &&
               has(a) && has(b);
      });
    };
    for (std::size_t i = 0; i < line.low.size(); ++i) {
      if (std::isnan(line.low[i]) || std::isnan(line.high[i])) continue;
      const std::string where = fmt::format("\"{}\" at {:.4g}", line.label, line.x[i]);
      const double rounding = 1e-6 * std::abs(line.y[i]) + 1e-12;
      if (!(line.y[i] >= line.low[i] - rounding && line.y[i] <= line.high[i] + rounding))
        fault("{}: {:.4g} lies outside of {:.4g} to {:.4g}", where, line.y[i], line.low[i],
              line.high[i]);
      const Point a = panel.place(line.x[i], line.low[i]);
      const Point b = panel.place(line.x[i], line.high[i]);
      const Rect frame = grown(panel.frame, 1.0);
      if (!(frame.contains(a) && frame.contains(b) && is_inked(a, b)))
        fault("{}: the interval is not in ink", where);
    }
  }

  const Figure& figure_;
  const Layout& layout_;
  const Theme& theme_;
  const RecordingCanvas& canvas_;
  Width width_;
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> faults_of(const Figure& made, Width width, Ground ground) {
  static const FontMetrics metrics(read_file(figure_font()), figure_font().string());
  const Theme theme = make_theme(Venue::icml, ground);
  Figure figure = clean_figure(made);
  const bool is_full = width == Width::page || (width == Width::own && figure.span == Span::full);
  Layout layout;
  try {
    layout = legible_layout(figure, is_full ? theme.full_width : theme.column_width, std::nullopt,
                            Columns::at_most, theme, metrics);
  } catch (const ConfigError& error) {
    if (width == Width::column && figure.span == Span::full) return {};  // and says so to users
    return {error.what()};
  }
  RecordingCanvas canvas(&metrics);
  draw_figure(figure, layout, theme, canvas);
  return Linter(figure, layout, theme, canvas, width).look();
}

}  // namespace kvscope::testing
