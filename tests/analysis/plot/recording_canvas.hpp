// A canvas that writes down what it is told: as a log of one line per call, in which drawings are
// compared without pixels, and as the calls themselves, which the lint of figures looks through.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/plot/canvas.hpp"
#include "core/base/utf8.hpp"

namespace kvscope::plot {

/// Every character is 0.6 em wide: logs do not depend on a font file.
class FixedMetrics final : public TextMetrics {
 public:
  double width(std::string_view text, double size) const override {
    return 0.6 * size * static_cast<double>(count_code_points(text));
  }
  double descent() const override { return 0.2; }
};

/// One call: what was painted, where, and within what.
struct Painted {
  enum class What { rect, line, polygon, markers, image, text } what;
  std::vector<Point> points;  // of lines, polygons and markers
  Rect rect;                  // of rectangles, images and words (as seen, turned)
  Colour colour;
  double size = 0.0;  // the width of a line, the radius of markers, the em of words
  Image image = {};
  std::string text = {};
  std::string group = {};    // the innermost
  std::optional<Rect> clip;  // what of it is seen
  bool is_clipped = false;   // marks of data are, and what stands among them
};

class RecordingCanvas final : public Canvas {
 public:
  /// `metrics`: of another font than the one of fixed width; must outlive the canvas.
  explicit RecordingCanvas(const TextMetrics* metrics = nullptr) : other_(metrics) {}
  const std::string& log() const { return log_; }
  const std::vector<Painted>& calls() const { return calls_; }

  const TextMetrics& metrics() const override { return other_ != nullptr ? *other_ : metrics_; }
  void fill_rect(const Rect& rect, Colour colour) override {
    line("rect {} {}", said(rect), said(colour));
    keep({.what = Painted::What::rect, .points = {}, .rect = rect, .colour = colour});
  }
  void polyline(std::span<const Point> points, const Stroke& stroke) override {
    constexpr std::string_view kDashes[] = {"solid", "dashed", "dotted", "dash-dot"};
    line("polyline {} w{:.2f} {} {}", said(stroke.colour), stroke.width,
         kDashes[static_cast<std::size_t>(stroke.dash)], said(points));
    keep(Painted::What::line, points, stroke.colour, stroke.width);
  }
  void polygon(std::span<const Point> points, Colour fill) override {
    line("polygon {} {}", said(fill), said(points));
    keep(Painted::What::polygon, points, fill, 0.0);
  }
  void markers(std::span<const Point> points, MarkerShape shape, double radius,
               Colour fill) override {
    line("markers {} r{:.2f} {} {}", static_cast<int>(shape), radius, said(fill), said(points));
    keep(Painted::What::markers, points, fill, radius);
  }
  void image(const Rect& rect, const Image& image) override {
    std::uint32_t sum = 2166136261U;  // FNV-1a: any changed pixel changes the line
    for (const std::uint8_t byte : image.rgba) sum = (sum ^ byte) * 16777619U;
    line("image {} {}x{} pixels {:08x}", said(rect), image.width, image.height, sum);
    keep({.what = Painted::What::image, .points = {}, .rect = rect, .colour = {}, .image = image});
  }
  void text(Point at, std::string_view text, const TextStyle& style) override {
    constexpr std::string_view kAligns[] = {"left", "centre", "right"};
    line("text {:.2f},{:.2f} {} {:.2f}pt {} turn{:.0f} \"{}\"", at.x, at.y,
         kAligns[static_cast<std::size_t>(style.align)], style.size, said(style.colour),
         style.rotation, text);
    const double w = metrics().width(text, style.size);
    const double left = style.align == Align::left    ? 0.0
                        : style.align == Align::right ? -w
                                                      : -0.5 * w;
    const double up = kAboveLine * style.size;
    const double h = up + kBelowLine * style.size;
    const Rect box = style.rotation == 0.0 ? Rect{at.x + left, at.y - up, w, h}
                                           : Rect{at.x - up, at.y - left - w, h, w};
    keep({.what = Painted::What::text,
          .points = {},
          .rect = box,
          .colour = style.colour,
          .size = style.size,
          .text = std::string(text)});
  }
  void push_clip(const Rect& rect) override {
    line("clip {}", said(rect));
    ++depth_;
    clips_.push_back(rect);
  }
  void pop_clip() override {
    --depth_;
    clips_.pop_back();
  }
  void begin_group(std::string_view name) override {
    line("group {}", name);
    groups_.emplace_back(name);
    ++depth_;
  }
  void end_group() override {
    groups_.pop_back();
    --depth_;
  }

 private:
  /// How far letters reach above and below their line, in em.
  static constexpr double kAboveLine = 0.73;
  static constexpr double kBelowLine = 0.12;

  void keep(Painted call) {
    call.group = groups_.empty() ? std::string() : groups_.back();
    call.is_clipped = !clips_.empty();
    if (call.is_clipped) call.clip = clips_.back();
    calls_.push_back(std::move(call));
  }
  void keep(Painted::What what, std::span<const Point> points, Colour colour, double size) {
    keep({.what = what,
          .points = {points.begin(), points.end()},
          .rect = {},
          .colour = colour,
          .size = size});
  }
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
  const TextMetrics* other_;
  std::string log_;
  std::vector<Painted> calls_;
  std::vector<std::string> groups_;
  int depth_ = 0;
  std::vector<Rect> clips_;
};

}  // namespace kvscope::plot
