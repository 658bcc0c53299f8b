#include "notebooks_export/story_drawing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/plot/draw.hpp"
#include "analysis/plot/rich_text.hpp"
#include "core/base/escape.hpp"
#include "notebooks_export/cairo_canvas.hpp"
#include "notebooks_export/figure_export.hpp"
#include "notebooks_export/moved_canvas.hpp"

namespace kvscope {

namespace {

using plot::Canvas;
using plot::Colour;
using plot::Point;
using plot::Rect;

constexpr plot::Size kPage{960.0, 540.0};  // points
constexpr double kDots = 96.0;             // per inch: 1280 x 720 pixels
constexpr double kMargin = 24.0;
constexpr double kNoteWidth = 250.0;
constexpr double kSmall = 10.0;
constexpr double kLow = 1e-4;  // weight of the darkest colour
constexpr double kFade = 0.86;
constexpr Colour kInk = plot::colour_from_rgb(0x1d2530);
constexpr Colour kSoft = plot::colour_from_rgb(0x5b6675);
constexpr Colour kGround = plot::colour_from_rgb(0xf7f8fa);
constexpr Colour kPaper = plot::colour_from_rgb(0xffffff);
constexpr Colour kAccent = plot::colour_from_rgb(0xd55e00);

/// Lines of words below each other; returns where the next one goes.
double draw_lines(Canvas& canvas, Point at, const std::string& words, double size, Colour colour,
                  double width, double bottom) {
  for (const std::string& line :
       plot::wrap_rich(canvas.metrics(), plot::verbatim(words), size, width)) {
    at.y += 1.35 * size;
    if (at.y > bottom) break;
    plot::draw_rich(canvas, at, line, {size, colour, plot::Align::left, 0.0});
  }
  return at.y;
}

plot::Image map_image(const DrawnMap& map) {
  plot::Image image{static_cast<int>(map.grid.cols()), static_cast<int>(map.grid.rows()), {}};
  for (Index row = 0; row < map.grid.rows(); ++row) {
    const TokenRange own = map.grid.row_queries(row);
    for (Index col = 0; col < map.grid.cols(); ++col) {
      const auto weight =
          static_cast<double>(map.weights[static_cast<std::size_t>(row * map.grid.cols() + col)]);
      Colour colour = kGround;
      if (!std::isnan(weight) && own.begin < map.shown.end && own.end > map.shown.begin) {
        colour = plot::colour_at(plot::ColourMap::sequential,
                                 1.0 - std::log(std::max(weight, 1e-300)) / std::log(kLow));
        const double share = map.kept ? map.kept->share(row, col) : 1.0;
        if (share < 1.0)
          colour = plot::blend(plot::with_alpha(kGround, kFade * (1.0 - share)), colour);
      }
      for (const std::uint8_t byte : {colour.r, colour.g, colour.b, std::uint8_t{255}})
        image.rgba.push_back(byte);
    }
  }
  return image;
}

void draw_arrow(Canvas& canvas, Point from, Point to) {
  const double angle = std::atan2(to.y - from.y, to.x - from.x);
  constexpr double kHead = 9.0;
  const auto wing = [&](double turn) {
    return Point{to.x - kHead * std::cos(angle + turn), to.y - kHead * std::sin(angle + turn)};
  };
  const std::vector<Point> shaft = {from, to};
  const std::vector<Point> head = {to, wing(-0.45), wing(0.45)};
  canvas.polyline(shaft, {plot::with_alpha(kInk, 0.7), 3.4, plot::Dash::solid});
  canvas.polyline(shaft, {kAccent, 1.8, plot::Dash::solid});
  canvas.polygon(head, kAccent);
}

void draw_label(Canvas& canvas, Point at, const std::string& label, const Rect& frame) {
  if (label.empty()) return;
  const std::string words = clean_text(label);
  const double w = canvas.metrics().width(words, kSmall) + 8.0;
  const double h = 1.5 * kSmall;
  const double x = std::clamp(at.x, frame.x, std::max(frame.x, frame.right() - w));
  const double y = std::clamp(at.y - h - 4.0, frame.y, frame.bottom() - h);
  canvas.fill_rect({x, y, w, h}, plot::with_alpha(kInk, 0.85));
  canvas.text({x + 4.0, y + h - 4.5}, words,
              {kSmall, plot::colour_from_rgb(0xffd9b0), plot::Align::left, 0.0});
}

void draw_marks(Canvas& canvas, const std::vector<StoryMark>& marks, const DrawnMap& map,
                const Rect& frame) {
  const auto place = [&](double key, double query) {
    return Point{frame.x + (key - static_cast<double>(map.grid.keys.begin)) * frame.w /
                               static_cast<double>(map.grid.keys.size()),
                 frame.y + (query - static_cast<double>(map.grid.queries.begin)) * frame.h /
                               static_cast<double>(map.grid.queries.size())};
  };
  canvas.push_clip(frame);
  for (const StoryMark& mark : marks) {
    if (mark.kind == StoryMark::Kind::box) {
      Point a =
          place(static_cast<double>(mark.keys.begin), static_cast<double>(mark.queries.begin));
      Point b = place(static_cast<double>(mark.keys.end), static_cast<double>(mark.queries.end));
      constexpr double kLeast = 6.0;  // a pair stays seen
      if (b.x - a.x < kLeast) a.x = (b.x = 0.5 * (a.x + b.x) + 0.5 * kLeast) - kLeast;
      if (b.y - a.y < kLeast) a.y = (b.y = 0.5 * (a.y + b.y) + 0.5 * kLeast) - kLeast;
      const std::vector<Point> box = {a, {b.x, a.y}, b, {a.x, b.y}, a};
      canvas.polyline(box, {plot::with_alpha(kInk, 0.7), 3.4, plot::Dash::solid});
      canvas.polyline(box, {kAccent, 1.8, plot::Dash::solid});
      draw_label(canvas, a, mark.label, frame);
    } else if (mark.kind == StoryMark::Kind::arrow) {
      const Point from =
          place(static_cast<double>(mark.from[1]) + 0.5, static_cast<double>(mark.from[0]) + 0.5);
      draw_arrow(
          canvas, from,
          place(static_cast<double>(mark.to[1]) + 0.5, static_cast<double>(mark.to[0]) + 0.5));
      draw_label(canvas, from, mark.label, frame);
    }
  }
  canvas.pop_clip();
}

/// Steps of 1, 2 or 5 times a power of ten, at most six.
double tick_step(double tokens) {
  const double power = std::pow(10.0, std::floor(std::log10(std::max(1.0, tokens / 6.0))));
  for (const double times : {1.0, 2.0, 5.0}) {
    if (tokens / (times * power) <= 6.0) return times * power;
  }
  return 10.0 * power;
}

void draw_map(Canvas& canvas, const DrawnMap& map, const std::vector<StoryMark>& marks, Rect place,
              bool has_ticks) {
  const double size = has_ticks ? kSmall : 6.5;
  const double below_words =
      draw_lines(canvas, {place.x, place.y - 0.35 * size}, clean_text(map.words), size,
                 has_ticks ? kInk : kSoft, place.w, place.bottom()) +
      0.5 * size;
  place.h -= below_words - place.y;
  place.y = below_words;
  const double left = has_ticks ? 34.0 : 0.0;
  const double below = has_ticks ? 16.0 : 0.0;
  const double per_token =
      std::min((place.w - left) / static_cast<double>(map.grid.keys.size()),
               (place.h - below) / static_cast<double>(map.grid.queries.size()));
  const Rect frame{place.x + left, place.y, per_token * static_cast<double>(map.grid.keys.size()),
                   per_token * static_cast<double>(map.grid.queries.size())};
  canvas.image(frame, map_image(map));
  const std::vector<Point> edge = {{frame.x, frame.y},
                                   {frame.right(), frame.y},
                                   {frame.right(), frame.bottom()},
                                   {frame.x, frame.bottom()},
                                   {frame.x, frame.y}};
  canvas.polyline(edge, {kSoft, 0.5, plot::Dash::solid});
  if (!has_ticks) return;
  const auto ticks = [&](TokenRange range, auto&& draw) {
    const double step = tick_step(static_cast<double>(range.size()));
    for (double at = std::ceil(static_cast<double>(range.begin) / step) * step;
         at < static_cast<double>(range.end); at += step)
      draw(at, (at - static_cast<double>(range.begin)) * per_token);
  };
  ticks(map.grid.keys, [&](double at, double x) {
    canvas.text({frame.x + x, frame.bottom() + 12.0}, fmt::format("{:.0f}", at),
                {8.0, kSoft, plot::Align::centre, 0.0});
  });
  ticks(map.grid.queries, [&](double at, double y) {
    canvas.text({frame.x - 4.0, frame.y + y + 3.0}, fmt::format("{:.0f}", at),
                {8.0, kSoft, plot::Align::right, 0.0});
  });
  draw_marks(canvas, marks, map, frame);
}

/// Words set in lines, as many around the query as there is room for.
void draw_text(Canvas& canvas, const DrawnText& text, const std::vector<StoryMark>& marks,
               const Rect& place) {
  constexpr double kSize = 10.5;
  constexpr double kLine = 17.0;
  struct Placed {
    std::size_t word;
    double x;
    Index line;
    double w;
  };
  std::vector<Placed> placed;
  double x = 0.0;
  Index line = 0;
  for (std::size_t i = 0; i < text.words.size(); ++i) {
    std::string word = text.words[i];
    const auto breaks = std::count(word.begin(), word.end(), '\n');
    std::erase(word, '\n');
    const double w = canvas.metrics().width(word, kSize);
    if (x + w > place.w && x > 0.0) {
      x = 0.0;
      ++line;
    }
    placed.push_back({i, x, line, w});
    x += w;
    if (breaks > 0) {
      x = 0.0;
      line += breaks;
    }
  }
  const auto n_lines = static_cast<Index>((place.h - 20.0) / kLine);
  Index top = 0;
  if (text.query) {
    const auto at = static_cast<std::size_t>(*text.query - text.first);
    if (at < placed.size())
      top = std::clamp<Index>(placed[at].line - n_lines + 3, 0, std::max<Index>(0, line));
  }
  canvas.text({place.x, place.y + kSmall}, clean_text(text.caption),
              {8.0, kSoft, plot::Align::left, 0.0});
  canvas.push_clip({place.x - 2.0, place.y + 16.0, place.w + 4.0, place.h - 16.0});
  for (const Placed& one : placed) {
    if (one.line < top || one.line >= top + n_lines) continue;
    const Rect box{place.x + one.x, place.y + 20.0 + static_cast<double>(one.line - top) * kLine,
                   one.w, kLine - 2.0};
    const double lost = one.word < text.lost.size() ? text.lost[one.word] : 0.0;
    const double read = one.word < text.read.size() ? text.read[one.word] : 0.0;
    if (lost > 0.0) canvas.fill_rect(box, plot::with_alpha(kAccent, 0.6 * std::min(1.0, lost)));
    if (read > 0.0)
      canvas.fill_rect({box.x, box.bottom() - 5.0, box.w, 5.0},
                       plot::with_alpha(plot::colour_from_rgb(0x0072b2),
                                        0.15 + 0.85 * std::sqrt(std::min(1.0, read))));
    const Index at = text.first + static_cast<Index>(one.word);
    const bool is_marked = std::any_of(marks.begin(), marks.end(), [&](const StoryMark& mark) {
      const auto holds = [&](TokenRange r) { return at >= r.begin && at < r.end; };
      return mark.kind == StoryMark::Kind::words &&
             (holds(mark.words) || (mark.at && holds(*mark.at)));
    });
    if (is_marked || text.query == at) {
      const std::vector<Point> under = {{box.x, box.bottom()}, {box.right(), box.bottom()}};
      canvas.polyline(under, {kAccent, text.query == at ? 3.0 : 1.5, plot::Dash::solid});
    }
    std::string word = text.words[one.word];
    std::erase(word, '\n');
    canvas.text({box.x, box.y + 11.5}, word, {kSize, kInk, plot::Align::left, 0.0});
  }
  canvas.pop_clip();
}

void draw_figure_at(Canvas& canvas, const plot::Figure& figure, const Rect& place) {
  RenderOptions options;
  options.venue = plot::Venue::slide;
  options.width = place.w / 72.0;
  PlacedFigure placed = place_figure(figure, options);
  if (placed.layout.size.h > place.h) {
    options.height = place.h / 72.0;
    placed = place_figure(figure, options);
  }
  MovedCanvas moved(canvas, {place.x, place.y});
  plot::draw_figure(placed.figure, placed.layout, placed.theme, moved, plot::PageFill::leave);
}

}  // namespace

std::string draw_story_step(const DrawnStep& step) {
  const auto canvas = make_png_canvas(kPage, kDots);
  canvas->fill_rect({0.0, 0.0, kPage.w, kPage.h}, kPaper);
  const double bottom = kPage.h - kMargin;
  double y =
      draw_lines(*canvas, {kMargin, kMargin - 10.0}, step.place, kSmall, kSoft, kNoteWidth, bottom);
  y = draw_lines(*canvas, {kMargin, y + 2.0}, clean_text(step.title), 19.0, kInk, kNoteWidth,
                 bottom);
  draw_lines(*canvas, {kMargin, y + 8.0}, clean_text(step.note), 12.5, kInk, kNoteWidth, bottom);

  Rect room{kMargin + kNoteWidth + 22.0, kMargin, 0.0, kPage.h - 2.0 * kMargin};
  room.w = kPage.w - kMargin - room.x;
  const int n_panels = (step.maps.empty() ? 0 : 1) + (step.text ? 1 : 0) + (step.figure ? 1 : 0);
  const double w = (room.w - 18.0 * (n_panels - 1)) / std::max(1, n_panels);
  const auto next = [&] {
    const Rect place{room.x, room.y, w, room.h};
    room.x += w + 18.0;
    return place;
  };
  if (step.maps.size() == 1) {
    draw_map(*canvas, step.maps[0], step.marks, next(), /*has_ticks=*/true);
  } else if (!step.maps.empty()) {
    const Rect place = next();
    const auto columns = static_cast<std::size_t>(
        std::ceil(std::sqrt(static_cast<double>(step.maps.size()) * place.w / place.h)));
    const double side = place.w / static_cast<double>(columns);
    for (std::size_t i = 0; i < step.maps.size(); ++i) {
      const Rect cell{place.x + static_cast<double>(i % columns) * side,
                      place.y + static_cast<double>(i / columns) * side, side - 4.0, side - 4.0};
      draw_map(*canvas, step.maps[i], {}, cell, /*has_ticks=*/false);
    }
  }
  if (step.text) draw_text(*canvas, *step.text, step.marks, next());
  if (step.figure) draw_figure_at(*canvas, *step.figure, next());
  return canvas->finish();
}

}  // namespace kvscope
