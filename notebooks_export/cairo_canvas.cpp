#include "notebooks_export/cairo_canvas.hpp"

#include <cairo-ft.h>
#include <cairo-pdf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <new>
#include <numbers>

#include "core/base/error.hpp"
#include "core/base/escape.hpp"
#include "core/base/version.hpp"

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

std::string read_font() {
  const auto path = plot::figure_font();
  std::ifstream in(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (!in.good() && !in.eof()) throw IoError("cannot read {}", path.string());
  return bytes;
}

/// The font in both forms; lives as long as the process, as Cairo keeps references to faces.
struct LoadedFont {
  std::string bytes = read_font();
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
  /// A point is `units_per_point` units of `surface`. `bytes` are what the surface writes to, if it
  /// writes to memory: it does so even when it is destroyed undrawn, so they must die after it.
  CairoCanvas(Surface surface, double units_per_point, std::unique_ptr<std::string> bytes = nullptr)
      : bytes_(std::move(bytes)),
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
    path(points, {0.0, 0.0}, 1.0);
    const bool closed = points.size() > 2 && points.front().x == points.back().x &&
                        points.front().y == points.back().y;
    if (closed) cairo_close_path(cr());
    cairo_stroke(cr());
  }

  void polygon(std::span<const Point> points, Colour fill) override {
    set_colour(fill);
    path(points, {0.0, 0.0}, 1.0);
    cairo_close_path(cr());
    cairo_fill(cr());
  }

  void markers(std::span<const Point> points, plot::MarkerShape shape, double radius,
               Colour fill) override {
    set_colour(fill);
    for (const Point& p : points) {
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
    cairo_show_text(cr(), clean_text(text).c_str());
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
  void end_drawing() {
    require_success(cairo_status(cr()));
    context_.reset();
    cairo_surface_flush(surface());
  }

 private:
  void set_colour(Colour c) {
    cairo_set_source_rgba(cr(), c.r / 255.0, c.g / 255.0, c.b / 255.0, c.alpha);
  }
  void path(std::span<const Point> points, Point at, double scale) {
    cairo_new_path(cr());
    for (const Point& p : points) cairo_line_to(cr(), at.x + scale * p.x, at.y + scale * p.y);
  }

  std::unique_ptr<std::string> bytes_;  // first, so that it dies last
  Surface surface_;
  Context context_;
};

class PdfCanvas final : public CairoCanvas {
 public:
  /// `drawn` writes to `bytes`.
  PdfCanvas(Surface drawn, std::unique_ptr<std::string> bytes, const std::string& title)
      : CairoCanvas(std::move(drawn), 1.0, std::move(bytes)) {
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
                    pixels_per_point) {}

  std::string finish() override {
    end_drawing();
    std::string bytes;
    require_success(cairo_surface_write_to_png_stream(surface(), append_bytes, &bytes));
    return bytes;
  }
};

}  // namespace

const plot::FontMetrics& figure_font_metrics() {
  return loaded_font().metrics;
}

std::unique_ptr<PageCanvas> make_pdf_canvas(plot::Size size, const std::string& title) {
  auto bytes = std::make_unique<std::string>();
  Surface surface(cairo_pdf_surface_create_for_stream(append_bytes, bytes.get(), size.w, size.h));
  return std::make_unique<PdfCanvas>(std::move(surface), std::move(bytes), title);
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

std::string encode_png(const Image& image) {
  const Surface surface = surface_of(image);
  std::string bytes;
  require_success(cairo_surface_write_to_png_stream(surface.get(), append_bytes, &bytes));
  return bytes;
}

}  // namespace kvscope
