#include "analysis/plot/font_metrics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "core/base/error.hpp"
#include "core/base/utf8.hpp"

namespace kvscope::plot {

namespace {

/// Big-endian numbers at checked places of a file.
class FontBytes {
 public:
  FontBytes(std::string_view bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  std::uint16_t u16(std::size_t at) const {
    if (at + 2 > bytes_.size()) fail("it ends too early");
    return static_cast<std::uint16_t>(byte(at) << 8 | byte(at + 1));
  }
  std::int16_t i16(std::size_t at) const { return static_cast<std::int16_t>(u16(at)); }
  std::uint32_t u32(std::size_t at) const {
    return static_cast<std::uint32_t>(u16(at)) << 16 | u16(at + 2);
  }

  /// Tables are those of a face: of a collection's, or of the only one.
  void choose(std::size_t face) {
    constexpr std::uint32_t kCollection = 0x74746366;
    if (u32(0) != kCollection) return;
    if (face >= u32(8)) fail(fmt::format("it has no face {}", face));
    directory_ = u32(12 + 4 * face);
  }
  std::uint32_t tag() const { return u32(directory_); }

  /// Where a table begins.
  std::size_t table(std::string_view tag) const {
    const int n_tables = u16(directory_ + 4);
    for (int i = 0; i < n_tables; ++i) {
      const std::size_t entry = directory_ + 12 + 16 * static_cast<std::size_t>(i);
      if (entry + 16 > bytes_.size()) fail("it ends too early");
      if (bytes_.substr(entry, 4) == tag) return u32(entry + 8);
    }
    fail(fmt::format("there is no table \"{}\"", tag));
  }

  [[noreturn]] void fail(std::string_view what) const {
    throw FormatError("{} is not a TrueType font that can be used: {}", where_, what);
  }

 private:
  unsigned byte(std::size_t at) const { return static_cast<unsigned char>(bytes_[at]); }
  std::string_view bytes_;
  const std::string& where_;
  std::size_t directory_ = 0;
};

/// The subtable of format 4 for Unicode.
std::size_t find_character_map(const FontBytes& font) {
  const std::size_t cmap = font.table("cmap");
  const int n = font.u16(cmap + 2);
  for (int i = 0; i < n; ++i) {
    const std::size_t entry = cmap + 4 + 8 * static_cast<std::size_t>(i);
    const int platform = font.u16(entry);
    const std::size_t at = cmap + font.u32(entry + 4);
    if ((platform == 0 || platform == 3) && font.u16(at) == 4) return at;
  }
  font.fail("its character map has no Unicode part of format 4");
}

std::vector<std::uint16_t> read_character_map(const FontBytes& font, std::size_t at) {
  std::vector<std::uint16_t> glyph_of(65536, 0);
  const std::size_t n2 = font.u16(at + 6);  // twice the number of segments
  const std::size_t ends = at + 14;
  const std::size_t starts = ends + n2 + 2;
  const std::size_t deltas = starts + n2;
  const std::size_t offsets = deltas + n2;
  for (std::size_t s = 0; s < n2; s += 2) {
    const std::uint32_t first = font.u16(starts + s);
    const std::uint32_t last = font.u16(ends + s);
    const std::uint16_t delta = font.u16(deltas + s);
    const std::uint16_t offset = font.u16(offsets + s);
    for (std::uint32_t c = first; c <= last && c < 0xFFFF; ++c) {
      std::uint16_t glyph = static_cast<std::uint16_t>(c + delta);
      if (offset != 0) {
        glyph = font.u16(offsets + s + offset + 2 * (c - first));
        if (glyph != 0) glyph = static_cast<std::uint16_t>(glyph + delta);
      }
      glyph_of[c] = glyph;
    }
  }
  return glyph_of;
}

}  // namespace

FontMetrics::FontMetrics(std::string_view bytes, const std::string& where,
                         std::optional<int> face) {
  constexpr std::uint32_t kTrueType = 0x00010000;
  constexpr std::uint32_t kOpenType = 0x4F54544F;
  FontBytes font(bytes, where);
  if (face) font.choose(static_cast<std::size_t>(*face));
  if (font.tag() != kTrueType && !(face && font.tag() == kOpenType))
    font.fail("it does not begin like one");
  const std::size_t head = font.table("head");
  units_per_em_ = font.u16(head + 18);
  if (units_per_em_ < 16) font.fail("its em is too small");
  const std::size_t hhea = font.table("hhea");
  height_per_em_ = (font.i16(hhea + 4) - font.i16(hhea + 6)) / units_per_em_;
  const std::size_t n_long = font.u16(hhea + 34);
  const std::size_t n_glyphs = font.u16(font.table("maxp") + 4);
  if (n_long == 0 || n_long > n_glyphs) font.fail("its table of widths is damaged");
  const std::size_t hmtx = font.table("hmtx");
  advance_of_.resize(n_glyphs);
  for (std::size_t g = 0; g < n_glyphs; ++g)
    advance_of_[g] = font.u16(hmtx + 4 * std::min(g, n_long - 1));
  glyph_of_ = read_character_map(font, find_character_map(font));
}

char32_t next_code_point(std::string_view text, std::size_t& at) {
  const std::size_t n = well_formed_size(text, at);
  const char32_t code_point = n == 0 ? 0xFFFD : utf8_char_at(text, at).code_point;
  at += std::max<std::size_t>(n, 1);
  return code_point;
}

bool FontMetrics::has(char32_t code_point) const {
  return code_point < glyph_of_.size() && glyph_of_[code_point] != 0;
}

double FontMetrics::width(std::string_view text, double size) const {
  double units = 0.0;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t code = next_code_point(text, at);
    const std::uint16_t glyph = code < glyph_of_.size() ? glyph_of_[code] : std::uint16_t{0};
    units += glyph < advance_of_.size() ? advance_of_[glyph] : 0;
  }
  return units * size / units_per_em_;
}

std::filesystem::path figure_font() {
  if (const char* chosen = std::getenv("KVSCOPE_FONT"); chosen != nullptr && *chosen != '\0') {
    if (std::filesystem::is_regular_file(chosen)) return chosen;
    throw IoError("KVSCOPE_FONT names {}, but there is no such file", chosen);
  }
  static constexpr const char* kPlaces[] = {
      "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",    // Debian, Ubuntu
      "/usr/share/fonts/dejavu-sans-fonts/DejaVuSans.ttf",  // Fedora
      "/usr/share/fonts/dejavu/DejaVuSans.ttf",             // Alpine, older Fedora
      "/usr/share/fonts/TTF/DejaVuSans.ttf",                // Arch
      "/usr/local/share/fonts/dejavu/DejaVuSans.ttf",       // FreeBSD
      "/opt/homebrew/share/fonts/DejaVuSans.ttf",
      "/Library/Fonts/DejaVuSans.ttf",
  };
  for (const char* place : kPlaces) {
    if (std::filesystem::is_regular_file(place)) return place;
  }
  throw IoError(
      "figures need the font DejaVu Sans (package fonts-dejavu-core), which is in none "
      "of {}; install it, or set KVSCOPE_FONT to its DejaVuSans.ttf",
      fmt::join(kPlaces, ", "));
}

}  // namespace kvscope::plot
