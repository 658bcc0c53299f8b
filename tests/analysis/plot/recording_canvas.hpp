// A canvas that writes down what it is told, one line per call: drawings are compared without
// pixels.
#pragma once

#include <fmt/format.h>

#include <algorithm>

#include "analysis/plot/canvas.hpp"
#include "core/base/utf8.hpp"
#include "core/base/vocabulary.hpp"

namespace kvscope::plot {

/// Every character is 0.6 em wide: logs do not depend on a font file.
class FixedMetrics final : public TextMetrics {
 public:
  double width(std::string_view text, double size) const override {
    return 0.6 * size * static_cast<double>(count_code_points(text));
  }
  double ascent() const override { return 0.8; }
  double descent() const override { return 0.2; }
};

class RecordingCanvas final : public Canvas {
 public:
  const std::string& log() const { return log_; }

  const TextMetrics& metrics() const override { return metrics_; }
  void fill_rect(const Rect& rect, Colour colour) override {
    line("rect {} {}", said(rect), said(colour));
  }
  void polyline(std::span<const Point> points, const Stroke& stroke) override {
    constexpr std::string_view kDashes[] = {"solid", "dashed", "dotted", "dash-dot"};
    line("polyline {} w{:.2f} {} {}", said(stroke.colour), stroke.width,
         kDashes[static_cast<std::size_t>(stroke.dash)], said(points));
  }
  void polygon(std::span<const Point> points, Colour fill) override {
    line("polygon {} {}", said(fill), said(points));
  }
  void markers(std::span<const Point> points, MarkerShape shape, double radius,
               Colour fill) override {
    line("markers {} r{:.2f} {} {}", static_cast<int>(shape), radius, said(fill), said(points));
  }
  void image(const Rect& rect, const Image& image) override {
    std::uint32_t sum = 2166136261U;  // FNV-1a: any changed pixel changes the line
    for (const std::uint8_t byte : image.rgba) sum = (sum ^ byte) * 16777619U;
    line("image {} {}x{} pixels {:08x}", said(rect), image.width, image.height, sum);
  }
  void text(Point at, std::string_view text, const TextStyle& style) override {
    constexpr std::string_view kAligns[] = {"left", "centre", "right"};
    line("text {:.2f},{:.2f} {} {:.2f}pt {} turn{:.0f} \"{}\"", at.x, at.y,
         kAligns[static_cast<std::size_t>(style.align)], style.size, said(style.colour),
         style.rotation, text);
  }
  void push_clip(const Rect& rect) override {
    line("clip {}", said(rect));
    ++depth_;
  }
  void pop_clip() override { --depth_; }
  void begin_group(std::string_view name) override {
    line("group {}", name);
    ++depth_;
  }
  void end_group() override { --depth_; }

 private:
  template <class... Parts>
  void line(fmt::format_string<Parts...> words, Parts&&... parts) {
    log_.append(static_cast<std::size_t>(2 * depth_), ' ');
    log_ += fmt::format(words, std::forward<Parts>(parts)...) + "\n";
  }
  static std::string said(Colour c) {
    return c.alpha < 1.0 ? fmt::format("{}/{:.2f}", hex(c), c.alpha) : hex(c);
  }
  static std::string said(const Rect& r) {
    return fmt::format("{:.2f},{:.2f} {:.2f}x{:.2f}", r.x, r.y, r.w, r.h);
  }
  /// The first points; the rest by number only, so that logs stay readable.
  static std::string said(std::span<const Point> points) {
    constexpr std::size_t kShown = 12;
    std::string out = fmt::format("{}:", points.size());
    for (const Point& p : points.first(std::min(points.size(), kShown)))
      out += fmt::format(" {:.2f},{:.2f}", p.x, p.y);
    return points.size() > kShown ? out + " ..." : out;
  }

  FixedMetrics metrics_;
  std::string log_;
  int depth_ = 0;
};

}  // namespace kvscope::plot
