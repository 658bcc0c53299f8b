// Widths of a TrueType font's characters, read from the file itself: layouts are then the same in
// every canvas and need no graphics library.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/plot/canvas.hpp"

namespace kvscope::plot {

/// The tables head, hhea, maxp, hmtx and cmap (format 4) of a TrueType file. Characters that the
/// font lacks are as wide as its missing-glyph box.
class FontMetrics final : public TextMetrics {
 public:
  /// `font`: the bytes of a .ttf file; `where` names it. With `face` also those of an .otf file, or
  /// of a collection's face of that number. Throws FormatError for anything else.
  FontMetrics(std::string_view font, const std::string& where, std::optional<int> face = {});
  double width(std::string_view text, double size) const override;
  double descent() const override { return descent_; }
  /// (ascender - descender) / units per em: a library that sizes fonts by their height (ImGui)
  /// needs its size multiplied by this to show the same letters as one that sizes them by the em.
  double height_per_em() const { return height_per_em_; }
  /// True if the font has a glyph for the code point.
  bool has(char32_t code_point) const;

 private:
  std::vector<std::uint16_t> glyph_of_;    // [65536] basic multilingual plane
  std::vector<std::uint16_t> advance_of_;  // [glyph] font units
  double units_per_em_ = 1000.0;
  double descent_ = 0.24;
  double height_per_em_ = 1.0;
};

/// The code point at byte `at` of `text`, which moves past it; broken bytes give U+FFFD.
char32_t next_code_point(std::string_view text, std::size_t& at);

/// The one font of all figures, DejaVu Sans: the file that the environment variable KVSCOPE_FONT
/// names (if set, it decides alone), else the first of the places where systems install it. No
/// font matching service is asked: it would silently give another font, and with it other bytes.
/// Throws IoError with the places tried.
std::filesystem::path figure_font();

/// The name under which viewers know that font.
inline constexpr const char* kFigureFontFamily = "DejaVu Sans";

}  // namespace kvscope::plot
