#include "notebooks_export/cairo_canvas.hpp"

#include <cairo-ft.h>
#include <cairo-pdf.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <new>
#include <numbers>

#include "analysis/plot/clip.hpp"
#include "core/base/error.hpp"
#include "core/base/escape.hpp"
#include "core/base/version.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope {

namespace {

using plot::Colour;
using plot::Image;
using plot::Point;
using plot::Rect;

struct SurfaceDeleter {
  void operator()(cairo_surface_t* s) const { cairo_surface_destroy(s); }
};
using Surface = std::unique_ptr<cairo_surface_t, SurfaceDeleter>;
struct ContextDeleter {
  void operator()(cairo_t* c) const { cairo_destroy(c); }
};
using Context = std::unique_ptr<cairo_t, ContextDeleter>;

/// The font in both forms; lives as long as the process, as Cairo keeps references to faces.
struct LoadedFont {
  std::string bytes = read_whole_file(plot::figure_font(), std::size_t{64} << 20U);
  plot::FontMetrics metrics{bytes, plot::figure_font().string()};
  FT_Library library = nullptr;
  FT_Face face = nullptr;
  cairo_font_face_t* cairo_face = nullptr;

  LoadedFont() {
    const bool loaded = FT_Init_FreeType(&library) == 0 &&
                        FT_New_Memory_Face(library, reinterpret_cast<const FT_Byte*>(bytes.data()),
                                           static_cast<FT_Long>(bytes.size()), 0, &face) == 0;
    if (!loaded)
      throw FormatError("{}: FreeType cannot use this font", plot::figure_font().string());
    cairo_face = cairo_ft_font_face_create_for_ft_face(face, FT_LOAD_NO_HINTING);
  }
};

const LoadedFont& loaded_font() {
  static const LoadedFont font;
  return font;
}

cairo_status_t append_bytes(void* to, const unsigned char* data, unsigned int n) {
  try {
    static_cast<std::string*>(to)->append(reinterpret_cast<const char*>(data), n);
  } catch (const std::bad_alloc&) {  // must not pass through C
    return CAIRO_STATUS_NO_MEMORY;
  }
  return CAIRO_STATUS_SUCCESS;
}

void require_success(cairo_status_t status) {
  if (status != CAIRO_STATUS_SUCCESS)
    throw IoError("drawing failed in Cairo: {}", cairo_status_to_string(status));
}

/// Cairo wants native-endian words with premultiplied alpha.
Surface surface_of(const Image& image) {
  bool opaque = true;
  for (std::size_t i = 3; i < image.rgba.size(); i += 4) opaque = opaque && image.rgba[i] == 255;
  const cairo_format_t format = opaque ? CAIRO_FORMAT_RGB24 : CAIRO_FORMAT_ARGB32;
  Surface surface(cairo_image_surface_create(format, image.width, image.height));
  require_success(cairo_surface_status(surface.get()));
  cairo_surface_flush(surface.get());
  unsigned char* data = cairo_image_surface_get_data(surface.get());
  const int stride = cairo_image_surface_get_stride(surface.get());
  for (int y = 0; y < image.height; ++y) {
    auto* row = reinterpret_cast<std::uint32_t*>(data + static_cast<std::ptrdiff_t>(y) * stride);
    for (int x = 0; x < image.width; ++x) {
      const std::uint8_t* p =
          image.rgba.data() + 4 * (static_cast<std::ptrdiff_t>(y) * image.width + x);
      const std::uint32_t a = p[3];
      const auto part = [&](std::uint32_t c) { return (c * a + 127) / 255; };
      row[x] = a << 24 | part(p[0]) << 16 | part(p[1]) << 8 | part(p[2]);
    }
  }
  cairo_surface_mark_dirty(surface.get());
  return surface;
}

class CairoCanvas : public PageCanvas {
 public:
  /// A point is `units_per_point` units of `surface`, which shows `page`. `bytes` are what the
  /// surface writes to, if it writes to memory: it does so even when it is destroyed undrawn, so
  /// they must die after it.
  CairoCanvas(Surface surface, plot::Size page, double units_per_point,
              std::unique_ptr<std::string> bytes = nullptr)
      : bytes_(std::move(bytes)),
        near_{-kNear, -kNear, page.w + 2 * kNear, page.h + 2 * kNear},
        surface_(std::move(surface)),
        context_(cairo_create(surface_.get())) {
    require_success(cairo_status(context_.get()));
    cairo_scale(cr(), units_per_point, units_per_point);
    cairo_set_font_face(cr(), loaded_font().cairo_face);
    cairo_font_options_t* options = cairo_font_options_create();
    cairo_font_options_set_hint_style(options, CAIRO_HINT_STYLE_NONE);
    cairo_font_options_set_hint_metrics(options, CAIRO_HINT_METRICS_OFF);
    cairo_font_options_set_antialias(options, CAIRO_ANTIALIAS_GRAY);
    cairo_set_font_options(cr(), options);
    cairo_font_options_destroy(options);
    cairo_set_line_join(cr(), CAIRO_LINE_JOIN_ROUND);
  }

  const plot::TextMetrics& metrics() const override { return figure_font_metrics(); }

  void fill_rect(const Rect& r, Colour colour) override {
    set_colour(colour);
    cairo_rectangle(cr(), r.x, r.y, r.w, r.h);
    cairo_fill(cr());
  }

  void polyline(std::span<const Point> points, const plot::Stroke& stroke) override {
    set_colour(stroke.colour);
    const std::vector<double> dashes = plot::dash_pattern(stroke.dash, stroke.width);
    cairo_set_dash(cr(), dashes.data(), static_cast<int>(dashes.size()), 0.0);
    cairo_set_line_width(cr(), stroke.width);
    if (!is_near(points)) {
      for (const std::vector<Point>& piece : plot::clip_line(points, near_)) {
        path(piece, {0.0, 0.0}, 1.0);
        cairo_stroke(cr());
      }
      return;
    }
    path(points, {0.0, 0.0}, 1.0);
    const bool closed = points.size() > 2 && points.front().x == points.back().x &&
                        points.front().y == points.back().y;
    if (closed) cairo_close_path(cr());
    cairo_stroke(cr());
  }

  void polygon(std::span<const Point> points, Colour fill) override {
    set_colour(fill);
    path(is_near(points) ? points : plot::clip_polygon(points, near_), {0.0, 0.0}, 1.0);
    cairo_close_path(cr());
    cairo_fill(cr());
  }

  void markers(std::span<const Point> points, plot::MarkerShape shape, double radius,
               Colour fill) override {
    set_colour(fill);
    for (const Point& p : points) {
      if (!near_.contains(p)) continue;
      if (shape == plot::MarkerShape::circle) {
        cairo_new_sub_path(cr());
        cairo_arc(cr(), p.x, p.y, radius, 0.0, 2.0 * std::numbers::pi);
      } else {
        path(plot::marker_outline(shape), p, radius);
      }
      cairo_close_path(cr());
      cairo_fill(cr());
    }
  }

  void image(const Rect& rect, const Image& small) override {
    if (small.width <= 0 || small.height <= 0) return;
    const int factor = plot::crisp_factor(small);
    const Image large = factor > 1 ? plot::enlarge(small, factor) : Image{};
    const Image& shown = factor > 1 ? large : small;
    const Surface source = surface_of(shown);
    cairo_save(cr());
    cairo_translate(cr(), rect.x, rect.y);
    cairo_scale(cr(), rect.w / shown.width, rect.h / shown.height);
    cairo_set_source_surface(cr(), source.get(), 0.0, 0.0);
    cairo_pattern_set_filter(cairo_get_source(cr()), CAIRO_FILTER_NEAREST);
    cairo_pattern_set_extend(cairo_get_source(cr()), CAIRO_EXTEND_PAD);
    cairo_rectangle(cr(), 0.0, 0.0, shown.width, shown.height);
    cairo_fill(cr());
    cairo_restore(cr());
  }

  void text(Point at, std::string_view text, const plot::TextStyle& style) override {
    set_colour(style.colour);
    const double width = metrics().width(text, style.size);
    const double shift = style.align == plot::Align::left     ? 0.0
                         : style.align == plot::Align::centre ? -0.5 * width
                                                              : -width;
    cairo_save(cr());
    cairo_translate(cr(), at.x, at.y);
    if (style.rotation != 0.0) cairo_rotate(cr(), -style.rotation * std::numbers::pi / 180.0);
    cairo_set_font_size(cr(), style.size);
    cairo_move_to(cr(), shift, 0.0);
    show_text(clean_text(text));
    cairo_restore(cr());
    cairo_new_path(cr());
  }

  void push_clip(const Rect& r) override {
    cairo_save(cr());
    cairo_rectangle(cr(), r.x, r.y, r.w, r.h);
    cairo_clip(cr());
  }
  void pop_clip() override { cairo_restore(cr()); }
  void begin_group(std::string_view) override {}
  void end_group() override {}

 protected:
  cairo_t* cr() const { return context_.get(); }
  cairo_surface_t* surface() const { return surface_.get(); }
  std::string& bytes() { return *bytes_; }
  virtual void show_text(const std::string& text) { cairo_show_text(cr(), text.c_str()); }
  void end_drawing() {
    require_success(cairo_status(cr()));
    context_.reset();
    cairo_surface_flush(surface());
  }

  bool is_near(std::span<const Point> points) const {
    return std::ranges::all_of(points, [&](Point p) { return near_.contains(p); });
  }
  void set_colour(Colour c) {
    cairo_set_source_rgba(cr(), c.r / 255.0, c.g / 255.0, c.b / 255.0, c.alpha);
  }

 private:
  static constexpr double kNear = 2000.0;  // points beyond the page

  void path(std::span<const Point> points, Point at, double scale) {
    cairo_new_path(cr());
    for (const Point& p : points) cairo_line_to(cr(), at.x + scale * p.x, at.y + scale * p.y);
  }

  std::unique_ptr<std::string> bytes_;  // first, so that it dies last
  Rect near_;
  Surface surface_;
  Context context_;
};

class PdfCanvas final : public CairoCanvas {
 public:
  /// `drawn` writes to `bytes`.
  PdfCanvas(Surface drawn, plot::Size size, std::unique_ptr<std::string> bytes,
            const std::string& title)
      : CairoCanvas(std::move(drawn), size, 1.0, std::move(bytes)) {
    const auto set = [&](cairo_pdf_metadata_t field, const std::string& value) {
      cairo_pdf_surface_set_metadata(surface(), field, value.c_str());
    };
    set(CAIRO_PDF_METADATA_CREATE_DATE, "2000-01-01T00:00:00Z");
    set(CAIRO_PDF_METADATA_MOD_DATE, "2000-01-01T00:00:00Z");
    set(CAIRO_PDF_METADATA_CREATOR, fmt::format("kvscope {}", version()));
    if (!title.empty()) set(CAIRO_PDF_METADATA_TITLE, clean_text(title));
  }

  std::string finish() override {
    cairo_show_page(cr());
    end_drawing();
    cairo_surface_finish(surface());
    require_success(cairo_surface_status(surface()));
    return std::move(bytes());
  }
};

class PngCanvas final : public CairoCanvas {
 public:
  PngCanvas(int width, int height, double pixels_per_point)
      : CairoCanvas(Surface(cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height)),
                    {width / pixels_per_point, height / pixels_per_point}, pixels_per_point) {}

  std::string finish() override {
    end_drawing();
    std::string bytes;
    require_success(cairo_surface_write_to_png_stream(surface(), append_bytes, &bytes));
    return bytes;
  }
};

class ScreenCanvas final : public CairoCanvas {
 public:
  /// `drawn`'s pixels are `bytes`.
  ScreenCanvas(Surface drawn, std::unique_ptr<std::string> bytes, plot::Size page, Point origin,
               double pixels_per_point, double density, std::vector<ScreenPicture>& beneath)
      : CairoCanvas(std::move(drawn), page, pixels_per_point, std::move(bytes)),
        origin_(origin),
        scale_(pixels_per_point),
        density_(density),
        beneath_(beneath) {
    cairo_identity_matrix(cr());
    cairo_translate(cr(), origin.x, origin.y);
    cairo_scale(cr(), scale_, scale_);
  }

  double pixels_per_point() const override { return density_ * scale_; }

  void polyline(std::span<const Point> points, const plot::Stroke& stroke) override {
    if (stroke.dash != plot::Dash::solid || !is_upright(points) || !is_near(points)) {
      CairoCanvas::polyline(points, stroke);
      return;
    }
    set_colour(stroke.colour);
    const double w = std::max(1.0, std::round(scale_ * stroke.width));
    const auto first = [&](double centre) { return std::round(centre - 0.5 * w); };
    const bool corners = points.size() > 2;  // meet in whole squares
    for (std::size_t i = 1; i < points.size(); ++i) {
      const auto [x0, x1] = std::minmax(points[i - 1].x, points[i].x);
      const auto [y0, y1] = std::minmax(points[i - 1].y, points[i].y);
      const Point a{scale_ * x0, scale_ * y0};
      const Point b{scale_ * x1, scale_ * y1};
      if (x0 == x1) {
        fill_pixels(first(a.x), corners ? first(a.y) : a.y, first(a.x) + w,
                    corners ? first(b.y) + w : b.y);
      } else {
        fill_pixels(corners ? first(a.x) : a.x, first(a.y), corners ? first(b.x) + w : b.x,
                    first(a.y) + w);
      }
    }
  }

  void image(const Rect& rect, const Image& image) override {
    const auto whole = [&](double x) { return std::round(scale_ * x) / scale_; };
    const Point low{whole(rect.x), whole(rect.y)};
    Point high{whole(rect.right()), whole(rect.bottom())};
    // pictures made for this place: pixel by pixel
    const auto fit = [&](double from, double& to, int pixels) {
      if (std::abs(scale_ * (to - from) - pixels) <= 1.0) to = from + pixels / scale_;
    };
    fit(low.x, high.x, image.width);
    fit(low.y, high.y, image.height);
    if (high.x <= low.x || high.y <= low.y) return;
    const Rect place{low.x, low.y, high.x - low.x, high.y - low.y};
    const bool is_large =
        image.width * image.height >= kLarge && image.width <= width() && image.height <= height();
    if (is_large && is_clear(on_screen(place)))
      beneath_.push_back({on_screen(place), clips_.back(), image});
    else
      CairoCanvas::image(place, image);
  }

  void push_clip(const Rect& r) override {
    cairo_save(cr());
    add_pixels(scale_ * r.x, scale_ * r.y, scale_ * r.right(), scale_ * r.bottom());
    cairo_clip(cr());
    clips_.push_back(intersection(clips_.back(), on_screen(r)));
  }
  void pop_clip() override {
    CairoCanvas::pop_clip();
    clips_.pop_back();
  }

  /// In place: Cairo painted into the bytes.
  std::string finish() override {
    end_drawing();
    static_assert(std::endian::native == std::endian::little);
    auto* pixels = reinterpret_cast<std::uint32_t*>(bytes().data());
    for (std::uint32_t* end = pixels + width() * height(); pixels != end; ++pixels) {
      const std::uint32_t a = *pixels >> 24;
      if (a == 0) continue;
      std::uint32_t parts[] = {*pixels >> 16 & 0xFF, *pixels >> 8 & 0xFF, *pixels & 0xFF};
      if (a != 255)
        for (std::uint32_t& part : parts) part = std::min(255U, (part * 255 + a / 2) / a);
      *pixels = a << 24 | parts[2] << 16 | parts[1] << 8 | parts[0];
    }
    return std::move(bytes());
  }

 protected:
  /// As outlines, which begin anywhere: letters of Cairo's own begin on whole pixels.
  void show_text(const std::string& text) override {
    cairo_text_path(cr(), text.c_str());
    cairo_fill(cr());
  }

 private:
  static constexpr std::size_t kMostUpright = 16;
  static constexpr int kLarge = 1 << 16;  // pixels of a picture

  int width() const { return cairo_image_surface_get_width(surface()); }
  int height() const { return cairo_image_surface_get_height(surface()); }
  Rect on_screen(const Rect& r) const {
    const double left = std::round(origin_.x + scale_ * r.x);
    const double top = std::round(origin_.y + scale_ * r.y);
    return {left, top, std::round(origin_.x + scale_ * r.right()) - left,
            std::round(origin_.y + scale_ * r.bottom()) - top};
  }
  static Rect intersection(const Rect& a, const Rect& b) {
    const double left = std::max(a.x, b.x);
    const double top = std::max(a.y, b.y);
    return {left, top, std::max(0.0, std::min(a.right(), b.right()) - left),
            std::max(0.0, std::min(a.bottom(), b.bottom()) - top)};
  }
  /// Whether nothing was painted there.
  bool is_clear(const Rect& place) const {
    cairo_surface_flush(surface());
    const Rect r = intersection(place, clips_.back());
    const std::vector<unsigned char> clear(4 * static_cast<std::size_t>(r.w));
    for (int y = static_cast<int>(r.y); y < static_cast<int>(r.bottom()); ++y) {
      const unsigned char* row = cairo_image_surface_get_data(surface()) +
                                 4L * (static_cast<long>(y) * width() + static_cast<long>(r.x));
      if (!std::equal(clear.begin(), clear.end(), row)) return false;
    }
    return true;
  }

  static bool is_upright(std::span<const Point> points) {
    for (std::size_t i = 1; i < points.size(); ++i) {
      if (points[i].x != points[i - 1].x && points[i].y != points[i - 1].y) return false;
    }
    return points.size() <= kMostUpright;
  }
  /// Counted from the page's corner.
  void add_pixels(double left, double top, double right, double bottom) {
    const double x = std::round(left) / scale_;
    const double y = std::round(top) / scale_;
    cairo_rectangle(cr(), x, y, std::round(right) / scale_ - x, std::round(bottom) / scale_ - y);
  }
  void fill_pixels(double left, double top, double right, double bottom) {
    add_pixels(left, top, right, bottom);
    cairo_fill(cr());
  }

  Point origin_;  // pixels
  double scale_;
  double density_;
  std::vector<ScreenPicture>& beneath_;
  std::vector<Rect> clips_{{0.0, 0.0, static_cast<double>(width()), static_cast<double>(height())}};
};

}  // namespace

const plot::FontMetrics& figure_font_metrics() {
  return loaded_font().metrics;
}

std::unique_ptr<PageCanvas> make_pdf_canvas(plot::Size size, const std::string& title) {
  auto bytes = std::make_unique<std::string>();
  Surface surface(cairo_pdf_surface_create_for_stream(append_bytes, bytes.get(), size.w, size.h));
  return std::make_unique<PdfCanvas>(std::move(surface), size, std::move(bytes), title);
}

std::unique_ptr<PageCanvas> make_png_canvas(plot::Size size, double dots_per_inch) {
  const double scale = dots_per_inch / 72.0;
  const double w = std::round(size.w * scale);
  const double h = std::round(size.h * scale);
  if (!(w >= 1.0 && h >= 1.0 && w <= 20000.0 && h <= 20000.0)) {
    throw ConfigError(
        "a PNG of {:.0f} x {:.0f} pixels cannot be drawn: at most 20000 a "
        "side; choose another width or resolution",
        w, h);
  }
  return std::make_unique<PngCanvas>(static_cast<int>(w), static_cast<int>(h), scale);
}

std::unique_ptr<PageCanvas> make_screen_canvas(int width, int height, Point origin,
                                               double pixels_per_point, double picture_density,
                                               std::vector<ScreenPicture>& beneath) {
  const plot::Size page{width / pixels_per_point, height / pixels_per_point};
  auto bytes = std::make_unique<std::string>(
      4 * static_cast<std::size_t>(width) * static_cast<std::size_t>(height), '\0');
  Surface surface(
      cairo_image_surface_create_for_data(reinterpret_cast<unsigned char*>(bytes->data()),
                                          CAIRO_FORMAT_ARGB32, width, height, 4 * width));
  return std::make_unique<ScreenCanvas>(std::move(surface), std::move(bytes), page, origin,
                                        pixels_per_point, picture_density, beneath);
}

std::string encode_png(const Image& image) {
  const Surface surface = surface_of(image);
  std::string bytes;
  require_success(cairo_surface_write_to_png_stream(surface.get(), append_bytes, &bytes));
  return bytes;
}

}  // namespace kvscope
