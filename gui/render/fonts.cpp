#include "gui/render/fonts.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "analysis/plot/font_metrics.hpp"
#include "core/base/error.hpp"
#include "core/base/mapped_file.hpp"
#include "gui/render/system_fonts.hpp"

namespace kvscope::gui {

namespace {

constexpr char32_t kReplacement = 0x25A1;  // an empty box
constexpr char32_t kLastOfPlane = 0xFFFF;  // ImWchar has 16 bits

/// What every size has: Latin, Greek, punctuation, signs and arrows of formulas, shapes.
constexpr ImWchar kAlways[] = {
    0x0020, 0x007E, 0x00A0, 0x017F, 0x0370, 0x03FF, 0x2010, 0x2027, 0x2030, 0x203A, 0x2044, 0x2044,
    0x2070, 0x209C, 0x20AC, 0x20AC, 0x2102, 0x2102, 0x2113, 0x2115, 0x211A, 0x211D, 0x2190, 0x2199,
    0x21B5, 0x21B5, 0x21D0, 0x21D5, 0x2200, 0x222B, 0x2234, 0x226B, 0x2282, 0x228B, 0x2295, 0x229B,
    0x22A5, 0x22A5, 0x22C5, 0x22C6, 0x22EE, 0x22EF, 0x2308, 0x230B, 0x2318, 0x2318, 0x25A0, 0x25CF,
    0x25E6, 0x25E6, 0x2605, 0x2606, 0x2713, 0x2717, 0x27E8, 0x27E9, 0xFFFD, 0xFFFD, 0};

bool is_always_there(char32_t code) {
  for (std::size_t i = 0; kAlways[i] != 0; i += 2) {
    if (code >= kAlways[i] && code <= kAlways[i + 1]) return true;
  }
  return false;
}

struct FontFile {
  explicit FontFile(const std::filesystem::path& path)
      : file(path), metrics(file.text(), path.string()) {}
  explicit FontFile(const SystemFont& font)
      : file(font.file), face(font.face), metrics(file.text(), font.file.string(), face) {}
  MappedFile file;
  int face = 0;  // of a collection
  plot::FontMetrics metrics;
};

constexpr std::size_t kMostFallbacks = 12;  // files

/// Pairs of first and last code point, ended by zero.
std::vector<ImWchar> ranges_of(const std::set<char32_t>& codes) {
  std::vector<ImWchar> ranges;
  for (char32_t code : codes) {
    if (!ranges.empty() && ranges.back() + 1U == code) {
      ranges.back() = static_cast<ImWchar>(code);
    } else {
      ranges.insert(ranges.end(), 2, static_cast<ImWchar>(code));
    }
  }
  ranges.push_back(0);
  return ranges;
}

}  // namespace

/// The font files.
struct FontAtlas::Sources {
  Sources() : figure(plot::figure_font()) {}

  /// A fallback that has it, if need be after opening one; damaged ones count as missing. Null:
  /// none.
  const FontFile* find_fallback(char32_t code) {
    for (const auto& font : fallbacks)
      if (font->metrics.has(code)) return font.get();
    if (fallbacks.size() == kMostFallbacks) return nullptr;
    for (const SystemFont& font : system_fonts_with(code)) {
      try {
        auto file = std::make_unique<FontFile>(font);
        if (!file->metrics.has(code)) continue;
        fallbacks.push_back(std::move(file));
        return fallbacks.back().get();
      } catch (const Error&) {
        continue;
      }
    }
    return nullptr;
  }

  FontFile figure;
  std::vector<std::unique_ptr<FontFile>> fallbacks;
};

/// What the atlas should hold beyond kAlways.
struct FontAtlas::Request {
  std::set<char32_t> of_figure_font;
  std::map<const FontFile*, std::set<char32_t>> of_fallbacks;
  std::set<char32_t> in_fallbacks;  // all of these
  std::set<char32_t> nowhere;
  std::vector<ImWchar> figure_ranges;  // ImGui reads them while it builds
  std::map<const FontFile*, std::vector<ImWchar>> fallback_ranges;

  std::size_t n_extra() const { return of_figure_font.size() + in_fallbacks.size(); }
};

FontAtlas::FontAtlas(double scale)
    : sources_(std::make_unique<Sources>()), request_(std::make_unique<Request>()) {
  set_scale(scale);
}

FontAtlas::~FontAtlas() = default;

void FontAtlas::set_scale(double scale) {
  scale = std::clamp(scale, 0.5, 4.0);
  if (scale == scale_ && body_.em > 0.0) return;
  scale_ = scale;
  // whole pixels in ImGui's measure, so that lines of text are whole pixels high
  const double height_per_em = sources_->figure.metrics.height_per_em();
  const auto em = [&](double size) {
    return std::round(size * scale * height_per_em) / height_per_em;
  };
  body_.em = em(13.0);
  small_.em = em(11.0);
  title_.em = em(18.0);
  stale_ = true;
}

bool FontAtlas::require(std::string_view utf8) {
  bool complete = true;
  for (std::size_t at = 0; at < utf8.size();) {
    const char32_t code = plot::next_code_point(utf8, at);
    if (code < 0x7F || is_always_there(code)) continue;
    Request& request = *request_;
    if (request.of_figure_font.contains(code) || request.in_fallbacks.contains(code)) {
      complete = complete && !stale_;
      continue;
    }
    if (code < 0x20 || code > kLastOfPlane || request.nowhere.contains(code)) continue;
    if (request.n_extra() >= kMostExtraCharacters) continue;
    if (sources_->figure.metrics.has(code)) {
      request.of_figure_font.insert(code);
    } else if (const FontFile* other = sources_->find_fallback(code)) {
      request.of_fallbacks[other].insert(code);
      request.in_fallbacks.insert(code);
    } else {
      request.nowhere.insert(code);
      continue;
    }
    stale_ = true;
    complete = false;
  }
  return complete;
}

bool FontAtlas::lacks(char32_t code) const {
  return request_->nowhere.contains(code);
}

void FontAtlas::add_font(BakedFont& baked) {
  const auto add = [&](const FontFile& source, const ImWchar* ranges, bool merge) {
    ImFontConfig config;
    const std::string_view bytes = source.file.text();
    config.FontData = const_cast<char*>(bytes.data());  // read only
    config.FontDataSize = static_cast<int>(bytes.size());
    config.SizePixels = static_cast<float>(baked.em * source.metrics.height_per_em());
    config.OversampleH = merge ? 1 : 2;
    config.OversampleV = 1;
    config.GlyphRanges = ranges;
    config.FontNo = source.face;
    config.MergeMode = merge;
    ImFont* font = atlas_.AddFont(&config);
    // "owned" until here so that AddFont does not copy megabytes per size; ours from here on
    atlas_.ConfigData.back().FontDataOwnedByAtlas = false;
    return font;
  };
  baked.font = add(sources_->figure, kAlways, /*merge=*/false);
  if (!request_->of_figure_font.empty()) {
    add(sources_->figure, request_->figure_ranges.data(), /*merge=*/true);
  }
  for (const auto& [font, ranges] : request_->fallback_ranges)
    add(*font, ranges.data(), /*merge=*/true);
}

bool FontAtlas::prepare() {
  if (!stale_) return false;
  request_->figure_ranges = ranges_of(request_->of_figure_font);
  request_->fallback_ranges.clear();
  for (const auto& [font, codes] : request_->of_fallbacks)
    request_->fallback_ranges[font] = ranges_of(codes);
  atlas_.Clear();
  atlas_.Flags |= ImFontAtlasFlags_NoPowerOfTwoHeight;
  // the first font of an atlas is ImGui's own choice
  for (BakedFont* baked : {&body_, &small_, &title_}) add_font(*baked);
  atlas_.Build();
  for (ImFont* font : atlas_.Fonts) {
    font->FallbackChar = static_cast<ImWchar>(kReplacement);
    font->BuildLookupTable();
  }
  stale_ = false;
  ++generation_;
  return true;
}

}  // namespace kvscope::gui
