// The interface's letters: the figures' font in three sizes, and whatever other characters the
// shown texts need.
//
// An atlas cannot change during a frame (Dear ImGui 1.86), so characters that are missing are noted
// and added before the next frame: prepare().
#pragma once

#include <imgui.h>

#include <cstdint>
#include <memory>
#include <string_view>

namespace kvscope::gui {

/// Sizes are pixels per em, as figures measure; ImGui's own measure, ascender minus descender, is
/// 1.164 times as much (plot::FontMetrics::height_per_em).
class FontAtlas {
 public:
  /// Throws IoError or FormatError if the figures' font (plot::figure_font) is missing or damaged.
  explicit FontAtlas(double scale = 1.0);
  ~FontAtlas();
  FontAtlas(const FontAtlas&) = delete;
  FontAtlas& operator=(const FontAtlas&) = delete;

  /// The interface's letters: 13 px per em for reading, 11 for what is secondary, 18 for titles,
  /// all times the scale. ImGui::PushFont(fonts.title()).
  ImFont* body() const { return body_.font; }
  ImFont* small() const { return small_.font; }
  ImFont* title() const { return title_.font; }
  double body_em() const { return body_.em; }
  double small_em() const { return small_.em; }

  /// The UI scale, 0.5 to 4; takes effect with the next frame.
  void set_scale(double scale);
  double scale() const { return scale_; }

  /// Notes the characters of `utf8` that are not in the atlas and that an installed font has; they
  /// are there from the next frame on. True if nothing was missing. Bounded: beyond
  /// kMostExtraCharacters, and for characters that no font has, the replacement box is shown.
  bool require(std::string_view utf8);

  /// True of a character that was required and that no font has.
  bool lacks(char32_t code) const;

  /// Between frames: builds what is missing. True if the atlas changed, and with it its texture and
  /// every ImFont.
  bool prepare();
  /// True if a frame would look better after prepare().
  bool is_stale() const { return stale_; }
  /// Changes with every rebuild: recorded drawings hold places in the atlas.
  std::uint64_t generation() const { return generation_; }

  /// For ImGui::CreateContext and the renderer that uploads the texture.
  ImFontAtlas& imgui() { return atlas_; }

  static constexpr std::size_t kMostExtraCharacters = 4000;

 private:
  struct Sources;
  struct Request;
  /// A size of the interface's letters.
  struct BakedFont {
    ImFont* font = nullptr;
    double em = 0.0;  // pixels per em of the glyphs in the atlas
  };
  void add_font(BakedFont& baked);

  std::unique_ptr<Sources> sources_;
  std::unique_ptr<Request> request_;
  ImFontAtlas atlas_;
  double scale_ = 1.0;
  BakedFont body_, small_, title_;
  bool stale_ = true;
  std::uint64_t generation_ = 0;
};

}  // namespace kvscope::gui
