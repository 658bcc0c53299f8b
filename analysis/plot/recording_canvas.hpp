// A canvas that writes down what it is told, one line per call: for tests that compare drawings
// without pixels.
#pragma once

#include <string>

#include "analysis/plot/canvas.hpp"

namespace kvscope::plot {

/// Every character is 0.6 em wide: logs do not depend on a font file.
class FixedMetrics final : public TextMetrics {
 public:
  double width(std::string_view text, double size) const override;
  double ascent() const override { return 0.8; }
  double descent() const override { return 0.2; }
};

class RecordingCanvas final : public Canvas {
 public:
  const std::string& log() const { return log_; }

  const TextMetrics& metrics() const override { return metrics_; }
  void fill_rect(const Rect& rect, Colour colour) override;
  void polyline(std::span<const Point> points, const Stroke& stroke) override;
  void polygon(std::span<const Point> points, Colour fill) override;
  void markers(std::span<const Point> points, MarkerShape shape, double radius,
               Colour fill) override;
  void image(const Rect& rect, const Image& image) override;
  void text(Point at, std::string_view text, const TextStyle& style) override;
  void push_clip(const Rect& rect) override;
  void pop_clip() override;
  void begin_group(std::string_view name) override;
  void end_group() override;

 private:
  void line(std::string_view text);
  FixedMetrics metrics_;
  std::string log_;
  int depth_ = 0;
};

}  // namespace kvscope::plot
