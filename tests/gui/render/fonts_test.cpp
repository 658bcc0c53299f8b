// Letters on demand: characters and sizes appear with the next frame, and only so many of them.
#include <imgui_internal.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "gui/render/system_fonts.hpp"
#include "tests/gui/platform/null_backend.hpp"

namespace kvscope::gui::fonts_test {
namespace {

bool shows(const NullBackend&, ImFont* font, unsigned code) {
  return font->FindGlyphNoFallback(static_cast<ImWchar>(code)) != nullptr;
}

TEST_CASE("characters that no font has are boxes, once and for all", "[render][fonts]") {
  NullBackend backend;
  backend.frame([] {});
  FontAtlas& fonts = backend.fonts();
  CHECK(fonts.require("\xF0\x9F\x98\x80 \xFF\xFE \uE123"));  // beyond the plane, broken, private
  CHECK_FALSE(fonts.is_stale());
  CHECK(fonts.body()->FallbackChar == 0x25A1);
}

TEST_CASE("a character that the figures' font lacks comes from whichever font has it",
          "[render][fonts]") {
  NullBackend backend;
  FontAtlas& fonts = backend.fonts();
  for (const char32_t c : {U'\u6ce8', U'\ud55c', U'\u0e44', U'\u0939'}) {
    const auto found = system_fonts_with(c);
    const ImWchar code[] = {static_cast<ImWchar>(c), 0};
    char utf8[8] = {};
    ImTextStrToUtf8(utf8, sizeof utf8, code, code + 1);
    fonts.require(utf8);
    backend.frame([] {});
    INFO(static_cast<unsigned>(c) << " in " << found.size() << " fonts");
    CHECK(fonts.lacks(c) == found.empty());
    CHECK(shows(backend, fonts.body(), c) == !found.empty());
    for (const SystemFont& font : found) CHECK(std::filesystem::exists(font.file));
  }
}

TEST_CASE("the atlas stays bounded whatever texts ask for", "[render][fonts]") {
  NullBackend backend;
  std::string everything;
  for (char32_t code = 0x3400; code < 0x9FFF; ++code) {
    everything += static_cast<char>(0xE0 | code >> 12);
    everything += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    everything += static_cast<char>(0x80 | (code & 0x3F));
  }
  backend.fonts().require(everything);
  backend.frame([] {});
  CHECK(backend.fonts().body()->Glyphs.Size < 6000);
  CHECK(backend.fonts().imgui().TexHeight <= 8192);
}

}  // namespace
}  // namespace kvscope::gui::fonts_test
