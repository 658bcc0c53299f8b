// Figures in a window: the drawing interface on an ImDrawList.
#pragma once

#include <imgui.h>

#include <cstdint>
#include <map>

#include "analysis/plot/canvas.hpp"
#include "gui/render/fonts.hpp"
#include "gui/render/textures.hpp"

namespace kvscope::gui {

/// The textures of one drawing's pictures, by content. Drawing again between begin() and end()
/// takes over what is still shown and drops the rest.
class DrawnImages {
 public:
  explicit DrawnImages(TextureStore& store) : store_(store) {}
  void begin();
  void end();
  const Texture& of(const plot::Image& image);
  int max_side() const { return store_.max_side(); }

 private:
  struct Entry {
    Texture texture;
    bool used = true;
  };
  TextureStore& store_;
  std::map<std::uint64_t, Entry> by_content_;
};

/// Points become pixels by one factor. Horizontal and vertical lines, frames and pictures lie on
/// whole pixels, so that they are crisp; letters are those of the atlas, placed by the figures'
/// metrics. Everything referred to must outlive the canvas; the list must be of the frame's ImGui
/// context. `picture_density`: pixels that pictures have per pixel of the screen; less than 1 draws
/// coarse ones, quickly.
class ImGuiCanvas final : public plot::Canvas {
 public:
  ImGuiCanvas(ImDrawList& list, FontAtlas& fonts, DrawnImages& images, ImVec2 origin,
              double pixels_per_point, double picture_density = 1.0);

  const plot::TextMetrics& metrics() const override { return fonts_.metrics(); }
  double pixels_per_point() const override { return picture_density_ * scale_; }
  void fill_rect(const plot::Rect& rect, plot::Colour colour) override;
  void polyline(std::span<const plot::Point> points, const plot::Stroke& stroke) override;
  void polygon(std::span<const plot::Point> points, plot::Colour fill) override;
  void markers(std::span<const plot::Point> points, plot::MarkerShape shape, double radius,
               plot::Colour fill) override;
  void image(const plot::Rect& rect, const plot::Image& image) override;
  void text(plot::Point at, std::string_view text, const plot::TextStyle& style) override;
  void push_clip(const plot::Rect& rect) override;
  void pop_clip() override;
  void begin_group(std::string_view) override {}
  void end_group() override {}

 private:
  plot::Point to_pixels(plot::Point p) const {
    return {origin_.x + scale_ * p.x, origin_.y + scale_ * p.y};
  }
  /// What can be seen, with some room around it.
  plot::Rect clip_box(double room) const;
  bool crisp_line(std::span<const plot::Point> pixels, double width, ImU32 colour);
  void stroke(std::span<const plot::Point> pixels, bool closed, double width, plot::Colour colour);

  ImDrawList& list_;
  FontAtlas& fonts_;
  DrawnImages& images_;
  ImVec2 origin_;
  double scale_;
  double picture_density_;
};

}  // namespace kvscope::gui
