// Part of a canvas as a canvas of its own: for figures inside a page.
#pragma once

#include "analysis/plot/canvas.hpp"
#include "core/base/vocabulary.hpp"

namespace kvscope {

/// A canvas whose points lie elsewhere on another: for figures inside a page.
class MovedCanvas final : public plot::Canvas {
 public:
  MovedCanvas(plot::Canvas& on, plot::Point by) : on_(on), by_(by) {}
  const plot::TextMetrics& metrics() const override { return on_.metrics(); }
  double pixels_per_point() const override { return on_.pixels_per_point(); }
  void fill_rect(const plot::Rect& r, plot::Colour c) override { on_.fill_rect(moved(r), c); }
  void polyline(std::span<const plot::Point> p, const plot::Stroke& s) override {
    on_.polyline(moved(p), s);
  }
  void polygon(std::span<const plot::Point> p, plot::Colour c) override {
    on_.polygon(moved(p), c);
  }
  void markers(std::span<const plot::Point> p, plot::MarkerShape shape, double radius,
               plot::Colour c) override {
    on_.markers(moved(p), shape, radius, c);
  }
  void image(const plot::Rect& r, const plot::Image& i) override { on_.image(moved(r), i); }
  void text(plot::Point at, std::string_view text, const plot::TextStyle& style) override {
    on_.text({at.x + by_.x, at.y + by_.y}, text, style);
  }
  void push_clip(const plot::Rect& r) override { on_.push_clip(moved(r)); }
  void pop_clip() override { on_.pop_clip(); }
  void begin_group(std::string_view name) override { on_.begin_group(name); }
  void end_group() override { on_.end_group(); }

 private:
  plot::Rect moved(plot::Rect r) const { return {r.x + by_.x, r.y + by_.y, r.w, r.h}; }
  std::vector<plot::Point> moved(std::span<const plot::Point> points) const {
    std::vector<plot::Point> out(points.begin(), points.end());
    for (plot::Point& p : out) p = {p.x + by_.x, p.y + by_.y};
    return out;
  }
  plot::Canvas& on_;
  plot::Point by_;
};

}  // namespace kvscope
