#include "gui/render/system_fonts.hpp"

#include <fontconfig/fontconfig.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>

namespace kvscope::gui {

namespace {

std::string text_of(FcPattern* font, const char* property) {
  FcChar8* text = nullptr;
  if (FcPatternGetString(font, property, 0, &text) != FcResultMatch) return "";
  return reinterpret_cast<const char*>(text);
}

int number_of(FcPattern* font, const char* property, int otherwise) {
  int number = otherwise;
  return FcPatternGetInteger(font, property, 0, &number) == FcResultMatch ? number : otherwise;
}

bool is_on(FcPattern* font, const char* property) {
  FcBool value = FcFalse;
  return FcPatternGetBool(font, property, 0, &value) == FcResultMatch && value != FcFalse;
}

struct Candidate {
  std::tuple<int, int, int, bool, std::string> rank;  // the least first
  SystemFont font;
};

}  // namespace

std::vector<SystemFont> system_fonts_with(char32_t character) {
  std::vector<Candidate> found;
  const FcFontSet* installed = FcConfigGetFonts(nullptr, FcSetSystem);
  for (int i = 0; installed != nullptr && i < installed->nfont; ++i) {
    FcPattern* font = installed->fonts[i];
    FcCharSet* characters = nullptr;
    if (FcPatternGetCharSet(font, FC_CHARSET, 0, &characters) != FcResultMatch) continue;
    if (FcCharSetHasChar(characters, character) == FcFalse || !is_on(font, FC_OUTLINE)) continue;
    const int face = number_of(font, FC_INDEX, 0);
    if (face > 0xFFFF) continue;  // one of a variable font's named styles
    const std::string family = text_of(font, FC_FAMILY);
    const bool is_plain =
        family.find("Sans") != std::string::npos || family.find("Gothic") != std::string::npos;
    const std::string file = text_of(font, FC_FILE);
    found.push_back({{number_of(font, FC_SLANT, FC_SLANT_ROMAN),
                      std::abs(number_of(font, FC_WEIGHT, FC_WEIGHT_REGULAR) - FC_WEIGHT_REGULAR),
                      std::abs(number_of(font, FC_WIDTH, FC_WIDTH_NORMAL) - FC_WIDTH_NORMAL),
                      !is_plain, file + "#" + std::to_string(face)},
                     {file, face}});
  }
  std::ranges::sort(found, {}, &Candidate::rank);
  std::vector<SystemFont> fonts;
  for (Candidate& one : found) fonts.push_back(std::move(one.font));
  return fonts;
}

}  // namespace kvscope::gui
