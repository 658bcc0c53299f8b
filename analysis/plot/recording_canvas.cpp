#include "analysis/plot/recording_canvas.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/utf8.hpp"

namespace kvscope::plot {

namespace {

std::string text_of(Colour c) {
  return c.alpha < 1.0 ? fmt::format("{}/{:.2f}", hex(c), c.alpha) : hex(c);
}

std::string text_of(const Rect& r) {
  return fmt::format("{:.2f},{:.2f} {:.2f}x{:.2f}", r.x, r.y, r.w, r.h);
}

/// The first points; the rest by number only, so that logs stay readable.
std::string text_of(std::span<const Point> points) {
  constexpr std::size_t kShown = 12;
  std::string out = fmt::format("{}:", points.size());
  for (const Point& p : points.first(std::min(points.size(), kShown)))
    out += fmt::format(" {:.2f},{:.2f}", p.x, p.y);
  return points.size() > kShown ? out + " ..." : out;
}

}  // namespace

double FixedMetrics::width(std::string_view text, double size) const {
  return 0.6 * size * static_cast<double>(count_code_points(text));
}

void RecordingCanvas::line(std::string_view text) {
  log_.append(static_cast<std::size_t>(2 * depth_), ' ');
  log_ += text;
  log_ += '\n';
}

void RecordingCanvas::fill_rect(const Rect& rect, Colour colour) {
  line(fmt::format("rect {} {}", text_of(rect), text_of(colour)));
}

void RecordingCanvas::polyline(std::span<const Point> points, const Stroke& stroke) {
  constexpr std::string_view kDashes[] = {"solid", "dashed", "dotted", "dash-dot"};
  line(fmt::format("polyline {} w{:.2f} {} {}", text_of(stroke.colour), stroke.width,
                   kDashes[static_cast<std::size_t>(stroke.dash)], text_of(points)));
}

void RecordingCanvas::polygon(std::span<const Point> points, Colour fill) {
  line(fmt::format("polygon {} {}", text_of(fill), text_of(points)));
}

void RecordingCanvas::markers(std::span<const Point> points, MarkerShape shape, double radius,
                              Colour fill) {
  line(fmt::format("markers {} r{:.2f} {} {}", static_cast<int>(shape), radius, text_of(fill),
                   text_of(points)));
}

void RecordingCanvas::image(const Rect& rect, const Image& image) {
  std::uint32_t sum = 2166136261U;  // FNV-1a: any changed pixel changes the line
  for (std::uint8_t byte : image.rgba) sum = (sum ^ byte) * 16777619U;
  line(fmt::format("image {} {}x{} pixels {:08x}", text_of(rect), image.width, image.height, sum));
}

void RecordingCanvas::text(Point at, std::string_view text, const TextStyle& style) {
  constexpr std::string_view kAligns[] = {"left", "centre", "right"};
  line(fmt::format("text {:.2f},{:.2f} {} {:.2f}pt {} turn{:.0f} \"{}\"", at.x, at.y,
                   kAligns[static_cast<std::size_t>(style.align)], style.size,
                   text_of(style.colour), style.rotation, text));
}

void RecordingCanvas::push_clip(const Rect& rect) {
  line("clip " + text_of(rect));
  ++depth_;
}

void RecordingCanvas::pop_clip() {
  --depth_;
}

void RecordingCanvas::begin_group(std::string_view name) {
  line(fmt::format("group {}", name));
  ++depth_;
}

void RecordingCanvas::end_group() {
  --depth_;
}

}  // namespace kvscope::plot
