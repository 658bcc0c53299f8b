// Figures as PDF, as PNG and as pixels of a window, through Cairo; no window system is involved.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "analysis/plot/canvas.hpp"
#include "analysis/plot/font_metrics.hpp"
#include "analysis/plot/geometry.hpp"

namespace kvscope {

/// The figures' font, loaded once per process: its metrics for layouts and its file for drawing.
/// Throws IoError if it is not installed, FormatError if it is damaged.
const plot::FontMetrics& figure_font_metrics();

/// A canvas that paints one page.
class PageCanvas : public plot::Canvas {
 public:
  /// Ends the page and returns the bytes of the file. Nothing can be drawn afterwards.
  virtual std::string finish() = 0;
};

/// One page of PDF 1.5: text stays text in an embedded TrueType subset; the creation date is fixed,
/// so that the same figure has the same bytes. Throws IoError as figure_font_metrics().
std::unique_ptr<PageCanvas> make_pdf_canvas(plot::Size size, const std::string& title);

/// Pixels at `dots_per_inch`, opaque. Throws ConfigError beyond 20,000 pixels a side.
std::unique_ptr<PageCanvas> make_png_canvas(plot::Size size, double dots_per_inch);

/// A picture in a rectangle of a screen, both in pixels of it; it shows within `clip`.
struct ScreenPicture {
  plot::Rect rect;
  plot::Rect clip;
  plot::Image image;
};

/// Pixels of a screen, transparent at first: finish() gives RGBA [height, width, 4]. Horizontal and
/// vertical lines, and pictures, lie on whole pixels, so that they are crisp. The page's corner is
/// at `origin`, in pixels. `picture_density`: pixels that pictures of clouds have per pixel of the
/// screen; less than 1 makes coarse ones, quickly. Large pictures that nothing is beneath are not
/// painted but added to `beneath`: a window shows them under the page, as coarse as they are.
std::unique_ptr<PageCanvas> make_screen_canvas(int width, int height, plot::Point origin,
                                               double pixels_per_point, double picture_density,
                                               std::vector<ScreenPicture>& beneath);

/// An image alone as PNG.
std::string encode_png(const plot::Image& image);

}  // namespace kvscope
