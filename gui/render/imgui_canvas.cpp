#include "gui/render/imgui_canvas.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <string_view>
#include <utility>

#include "analysis/plot/font_metrics.hpp"
#include "gui/render/colour.hpp"
#include "gui/render/fill_geometry.hpp"
#include "gui/render/marker_stamp.hpp"
#include "gui/render/shrink_image.hpp"
#include "gui/render/stroke_geometry.hpp"

namespace kvscope::gui {

namespace {

using plot::Colour;
using plot::Point;
using plot::Rect;

ImVec2 vec(Point p) {
  return {static_cast<float>(p.x), static_cast<float>(p.y)};
}

ImVec2 whole(double x, double y) {
  return {static_cast<float>(std::round(x)), static_cast<float>(std::round(y))};
}

bool is_finite(const Rect& r) {
  return std::isfinite(r.x + r.y + r.w + r.h);
}

bool is_axis_aligned(std::span<const Point> points) {
  for (std::size_t i = 1; i < points.size(); ++i) {
    if (points[i].x != points[i - 1].x && points[i].y != points[i - 1].y) return false;
  }
  return true;
}

bool is_closed(std::span<const Point> points) {
  return points.size() > 3 && points.front().x == points.back().x &&
         points.front().y == points.back().y;
}

}  // namespace

void DrawnImages::begin() {
  for (auto& [key, entry] : by_content_) entry.used = false;
}

void DrawnImages::end() {
  std::erase_if(by_content_, [](const auto& item) { return !item.second.used; });
}

const Texture& DrawnImages::of(const plot::Image& image) {
  const std::string_view bytes(reinterpret_cast<const char*>(image.rgba.data()), image.rgba.size());
  const std::uint64_t key = std::hash<std::string_view>()(bytes) * 31 +
                            static_cast<std::uint64_t>(image.width) * 1000003 +
                            static_cast<std::uint64_t>(image.height);
  auto found = by_content_.find(key);
  if (found == by_content_.end()) {
    found = by_content_.emplace(key, Entry{Texture(store_, image, Filter::nearest), true}).first;
  }
  found->second.used = true;
  return found->second.texture;
}

ImGuiCanvas::ImGuiCanvas(ImDrawList& list, FontAtlas& fonts, DrawnImages& images, ImVec2 origin,
                         double pixels_per_point, double picture_density)
    : list_(list),
      fonts_(fonts),
      images_(images),
      origin_(origin),
      scale_(pixels_per_point),
      picture_density_(picture_density) {}

Rect ImGuiCanvas::clip_box(double room) const {
  const ImVec2 low = list_.GetClipRectMin();
  const ImVec2 high = list_.GetClipRectMax();
  return {low.x - room, low.y - room, high.x - low.x + 2 * room, high.y - low.y + 2 * room};
}

void ImGuiCanvas::fill_rect(const Rect& rect, Colour colour) {
  if (!is_finite(rect)) return;
  const Rect box = clip_box(2.0);
  const Point a = to_pixels({rect.x, rect.y});
  const Point b = to_pixels({rect.right(), rect.bottom()});
  double left = std::clamp(a.x, box.x, box.right());
  double right = std::clamp(b.x, box.x, box.right());
  const double top = std::clamp(a.y, box.y, box.bottom());
  const double bottom = std::clamp(b.y, box.y, box.bottom());
  if (right - left < 1.0) {
    // thinner than a pixel: a whole pixel, as much paler
    colour.alpha *= std::max(0.0, right - left);
    left = std::floor(left);
    right = left + 1.0;
  }
  list_.AddRectFilled(vec({left, top}), vec({right, bottom}), packed(colour));
}

bool ImGuiCanvas::crisp_line(std::span<const Point> pixels, double width, ImU32 colour) {
  if (!is_axis_aligned(pixels) || pixels.size() > 16) return false;
  const double w = std::max(1.0, std::round(width));
  const auto first = [&](double centre) { return std::round(centre - 0.5 * w); };
  for (std::size_t i = 1; i < pixels.size(); ++i) {
    const auto [x0, x1] = std::minmax(pixels[i - 1].x, pixels[i].x);
    const auto [y0, y1] = std::minmax(pixels[i - 1].y, pixels[i].y);
    const bool corners = pixels.size() > 2;  // meet in whole squares
    ImVec2 low;
    ImVec2 high;
    if (x0 == x1) {
      low = whole(first(x0), corners ? first(y0) : y0);
      high = whole(first(x0) + w, corners ? first(y1) + w : y1);
    } else {
      low = whole(corners ? first(x0) : x0, first(y0));
      high = whole(corners ? first(x1) + w : x1, first(y0) + w);
    }
    list_.AddRectFilled(low, high, colour);
  }
  return true;
}

void ImGuiCanvas::stroke(std::span<const Point> pixels, bool closed, double width, Colour colour) {
  if (pixels.size() < 2) return;
  if (width < 1.0) {
    colour.alpha *= width;
    width = 1.0;
  }
  constexpr std::size_t kMostPoints = 8000;  // of one piece: 16-bit indices
  if (pixels.size() > kMostPoints) {
    for (std::size_t i = 0; i + 1 < pixels.size(); i += kMostPoints - 1) {
      stroke(pixels.subspan(i, std::min(kMostPoints, pixels.size() - i)), /*closed=*/false, width,
             colour);
    }
    return;
  }
  std::vector<ImVec2> points;
  points.reserve(pixels.size());
  for (const Point& p : pixels) points.push_back(vec(p));
  if (closed) points.pop_back();
  // whole numbers take ImGui's fast path: lines from a texture, half the corners
  const double rounded = std::round(4.0 * width) / 4.0;
  list_.AddPolyline(points.data(), static_cast<int>(points.size()), packed(colour),
                    closed ? ImDrawFlags_Closed : ImDrawFlags_None, static_cast<float>(rounded));
}

void ImGuiCanvas::polyline(std::span<const Point> points, const plot::Stroke& stroke_style) {
  std::vector<Point> pixels;
  pixels.reserve(points.size());
  for (const Point& p : points) {
    const Point at = to_pixels(p);
    if (std::isfinite(at.x + at.y)) pixels.push_back(at);
  }
  if (pixels.size() < 2) return;
  const double width = scale_ * stroke_style.width;
  const Rect box = clip_box(width + 4.0);
  std::vector<double> pattern = plot::dash_pattern(stroke_style.dash, stroke_style.width);
  for (double& length : pattern) length *= scale_;

  const bool all_inside = std::ranges::all_of(pixels, [&](Point p) { return box.contains(p); });
  if (pattern.empty() && all_inside) {
    if (crisp_line(pixels, width, packed(stroke_style.colour))) return;
    if (is_closed(pixels)) {
      stroke(pixels, /*closed=*/true, width, stroke_style.colour);
      return;
    }
  }
  for (ClippedLine& piece : clip_line(pixels, box)) {
    if (pattern.empty() && crisp_line(piece.points, width, packed(stroke_style.colour))) continue;
    std::vector<Polyline> strokes;
    if (pattern.empty()) {
      strokes.push_back(std::move(piece.points));
    } else {
      strokes = dash_line(piece, pattern);
    }
    for (Polyline& whole : strokes) {
      for (const Polyline& part : split_at_sharp_turns(std::move(whole))) {
        stroke(part, /*closed=*/false, width, stroke_style.colour);
      }
    }
  }
}

void ImGuiCanvas::polygon(std::span<const Point> points, Colour fill) {
  std::vector<Point> pixels;
  pixels.reserve(points.size());
  for (const Point& p : points) {
    const Point at = to_pixels(p);
    if (std::isfinite(at.x + at.y)) pixels.push_back(at);
  }
  const Rect box = clip_box(2.0);
  const bool all_inside = std::ranges::all_of(pixels, [&](Point p) { return box.contains(p); });
  const Triangles triangles = triangulate(all_inside ? pixels : clip_polygon(pixels, box));
  const ImU32 colour = packed(fill);
  const ImVec2 white = ImGui::GetFontTexUvWhitePixel();
  // vertices are not shared, so that any number of triangles passes 16-bit indices
  for (std::size_t i = 0; i + 2 < triangles.indices.size(); i += 3) {
    list_.PrimReserve(3, 3);
    for (std::size_t corner = 0; corner < 3; ++corner) {
      list_.PrimVtx(vec(triangles.points[triangles.indices[i + corner]]), white, colour);
    }
  }
}

void ImGuiCanvas::markers(std::span<const Point> points, plot::MarkerShape shape, double radius,
                          Colour fill) {
  const double pixel_radius = scale_ * radius;
  const MarkerStamp stamp(shape, pixel_radius);
  const Rect box = clip_box(2.0 * pixel_radius + 2.0);
  for (const Point& p : points) {
    const Point at = to_pixels(p);
    if (box.contains(at)) stamp.draw(list_, vec(at), packed(fill));
  }
}

void ImGuiCanvas::image(const Rect& rect, const plot::Image& image) {
  if (image.width <= 0 || image.height <= 0 || !is_finite(rect)) return;
  const Point a = to_pixels({rect.x, rect.y});
  const Point b = to_pixels({rect.right(), rect.bottom()});
  const ImVec2 low = whole(a.x, a.y);
  ImVec2 high = whole(b.x, b.y);
  // pictures made for this place: pixel by pixel
  const auto nearly = [](float length, int pixels) {
    return std::abs(length - static_cast<float>(pixels)) <= 1.0F;
  };
  if (nearly(high.x - low.x, image.width)) high.x = low.x + static_cast<float>(image.width);
  if (nearly(high.y - low.y, image.height)) high.y = low.y + static_cast<float>(image.height);
  if (high.x <= low.x || high.y <= low.y) return;

  const int most = images_.max_side();
  const int width = std::min({image.width, static_cast<int>(high.x - low.x), most});
  const int height = std::min({image.height, static_cast<int>(high.y - low.y), most});
  const bool fits = width == image.width && height == image.height;
  const Texture& texture = images_.of(fits ? image : shrink_image(image, width, height));
  list_.AddImage(texture.id(), low, high);
}

void ImGuiCanvas::text(Point at, std::string_view text, const plot::TextStyle& style) {
  if (text.empty() || !std::isfinite(at.x + at.y)) return;
  fonts_.require(text);
  const double em = scale_ * style.size;
  const BakedFont baked = fonts_.nearest(em);
  const double angle = style.rotation * std::numbers::pi / 180.0;
  const Point along{std::cos(angle), -std::sin(angle)};
  const Point down{std::sin(angle), std::cos(angle)};
  const double width = metrics().width(text, em);
  const double shift = style.align == plot::Align::left     ? 0.0
                       : style.align == plot::Align::centre ? -0.5 * width
                                                            : -width;
  Point start = to_pixels(at);
  start = {std::round(start.x + shift * along.x), std::round(start.y + shift * along.y)};

  const ImU32 colour = packed(style.colour);
  list_.PushTextureID(baked.font->ContainerAtlas->TexID);
  double pen = 0.0;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t begin = from;
    const char32_t code = plot::next_code_point(text, from);
    // sizes of figures have few characters: others come from the interface's letters
    BakedFont source = baked;
    const ImFontGlyph* glyph = nullptr;
    if (code <= 0xFFFF) glyph = source.font->FindGlyphNoFallback(static_cast<ImWchar>(code));
    if (glyph == nullptr) {
      source = {fonts_.title(), fonts_.title_em()};
      glyph = source.font->FindGlyph(static_cast<ImWchar>(code <= 0xFFFF ? code : 0xFFFF));
    }
    if (glyph != nullptr && glyph->Visible) {
      const double size = em / source.em;
      const double rise = std::round(source.font->Ascent);
      const double x0 = pen + size * glyph->X0;
      const double x1 = pen + size * glyph->X1;
      const double y0 = size * (glyph->Y0 - rise);
      const double y1 = size * (glyph->Y1 - rise);
      const auto corner = [&](double x, double y) {
        return vec({start.x + x * along.x + y * down.x, start.y + x * along.y + y * down.y});
      };
      list_.PrimReserve(6, 4);
      list_.PrimQuadUV(corner(x0, y0), corner(x1, y0), corner(x1, y1), corner(x0, y1),
                       {glyph->U0, glyph->V0}, {glyph->U1, glyph->V0}, {glyph->U1, glyph->V1},
                       {glyph->U0, glyph->V1}, colour);
    }
    pen += metrics().width(text.substr(begin, from - begin), em);
  }
  list_.PopTextureID();
}

void ImGuiCanvas::push_clip(const Rect& rect) {
  const Point a = to_pixels({rect.x, rect.y});
  const Point b = to_pixels({rect.right(), rect.bottom()});
  list_.PushClipRect(whole(a.x, a.y), whole(b.x, b.y), /*intersect=*/true);
}

void ImGuiCanvas::pop_clip() {
  list_.PopClipRect();
}

}  // namespace kvscope::gui
