#include "notebooks_export/svg_canvas.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "analysis/base/base64.hpp"
#include "core/base/escape.hpp"

namespace kvscope {

namespace {

using plot::Colour;
using plot::Point;
using plot::Rect;

/// Hundredths of a point, without trailing zeros.
std::string num(double x) {
  std::string text = fmt::format("{:.2f}", x);
  while (text.ends_with('0')) text.pop_back();
  if (text.ends_with('.')) text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string paint(std::string_view what, Colour c) {
  std::string out = fmt::format(" {}=\"{}\"", what, plot::hex(c));
  if (c.alpha < 1.0) out += fmt::format(" {}-opacity=\"{}\"", what, num(c.alpha));
  return out;
}

std::string points_text(std::span<const Point> points, Point at = {}, double scale = 1.0) {
  std::string out;
  for (const Point& p : points) {
    out += (out.empty() ? "" : " ") + num(at.x + scale * p.x) + "," + num(at.y + scale * p.y);
  }
  return out;
}

class SvgCanvas final : public PageCanvas {
 public:
  SvgCanvas(plot::Size size, const std::string& title) {
    body_ = fmt::format(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<svg xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\" "
        "width=\"{0}pt\" height=\"{1}pt\" viewBox=\"0 0 {0} {1}\" role=\"img\" "
        "font-family=\"'{2}', 'Bitstream Vera Sans', Verdana, sans-serif\" "
        "stroke-linejoin=\"round\">\n",
        num(size.w), num(size.h), plot::kFigureFontFamily);
    if (!title.empty()) body_ += fmt::format("<title>{}</title>\n", xml_escape(title));
  }

  const plot::TextMetrics& metrics() const override { return figure_font_metrics(); }

  void fill_rect(const Rect& r, Colour colour) override {
    body_ += fmt::format("<rect{}{}/>\n", box(r), paint("fill", colour));
  }

  void polyline(std::span<const Point> points, const plot::Stroke& stroke) override {
    std::string dashes;
    for (double d : plot::dash_pattern(stroke.dash, stroke.width)) {
      dashes += (dashes.empty() ? "" : " ") + num(d);
    }
    if (!dashes.empty()) dashes = fmt::format(" stroke-dasharray=\"{}\"", dashes);
    body_ +=
        fmt::format("<polyline points=\"{}\" fill=\"none\"{} stroke-width=\"{}\"{}/>\n",
                    points_text(points), paint("stroke", stroke.colour), num(stroke.width), dashes);
  }

  void polygon(std::span<const Point> points, Colour fill) override {
    body_ += fmt::format("<polygon points=\"{}\"{}/>\n", points_text(points), paint("fill", fill));
  }

  void markers(std::span<const Point> points, plot::MarkerShape shape, double radius,
               Colour fill) override {
    body_ += fmt::format("<g{}>\n", paint("fill", fill));
    for (const Point& p : points) {
      if (shape == plot::MarkerShape::circle) {
        body_ += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"{}\"/>\n", num(p.x), num(p.y),
                             num(radius));
      } else {
        body_ += fmt::format("<polygon points=\"{}\"/>\n",
                             points_text(plot::marker_outline(shape), p, radius));
      }
    }
    body_ += "</g>\n";
  }

  void image(const Rect& r, const plot::Image& image) override {
    const std::string png = encode_png(plot::enlarge(image, plot::crisp_factor(image)));
    body_ += fmt::format(
        "<image{} preserveAspectRatio=\"none\" image-rendering=\"optimizeSpeed\" "
        "style=\"image-rendering:pixelated\" xlink:href=\"data:image/png;base64,{}\"/>\n",
        box(r), text_from_bytes(std::as_bytes(std::span(png)), LastGroup::padded));
  }

  void text(Point at, std::string_view text, const plot::TextStyle& style) override {
    if (text.empty()) return;
    constexpr std::string_view kAnchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
    const std::string turn = style.rotation == 0.0
                                 ? std::string()
                                 : fmt::format(" transform=\"rotate({} {} {})\"",
                                               num(-style.rotation), num(at.x), num(at.y));
    body_ += fmt::format(
        "<text x=\"{}\" y=\"{}\" font-size=\"{}\" textLength=\"{}\" "
        "lengthAdjust=\"spacingAndGlyphs\"{}{}{} xml:space=\"preserve\">{}</text>\n",
        num(at.x), num(at.y), num(style.size), num(metrics().width(text, style.size)),
        kAnchors[static_cast<std::size_t>(style.align)], turn, paint("fill", style.colour),
        xml_escape(text));
  }

  void push_clip(const Rect& r) override {
    ++n_clips_;
    body_ += fmt::format(
        "<clipPath id=\"clip{0}\"><rect{1}/></clipPath>\n<g clip-path=\"url(#clip{0})\">\n",
        n_clips_, box(r));
  }
  void pop_clip() override { body_ += "</g>\n"; }
  void begin_group(std::string_view name) override {
    body_ += fmt::format("<g class=\"{}\">\n", xml_escape(name));
  }
  void end_group() override { body_ += "</g>\n"; }

  std::string finish() override { return std::move(body_) + "</svg>\n"; }

 private:
  static std::string box(const Rect& r) {
    return fmt::format(" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", num(r.x), num(r.y),
                       num(r.w), num(r.h));
  }
  std::string body_;
  int n_clips_ = 0;
};

}  // namespace

std::unique_ptr<PageCanvas> make_svg_canvas(plot::Size size, const std::string& title) {
  return std::make_unique<SvgCanvas>(size, title);
}

}  // namespace kvscope
