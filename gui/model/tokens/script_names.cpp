#include "gui/model/tokens/script_names.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "gui/model/tokens/token_lines.hpp"

namespace kvscope::gui {

namespace {

struct Script {
  char32_t first;
  char32_t last;
  std::string_view name;
  bool changes_letters = false;  // beside others, as a shaping engine knows
};

constexpr Script kScripts[] = {
    {0x0530, 0x058f, "Armenian"},
    {0x0590, 0x05ff, "Hebrew"},
    {0x0600, 0x06ff, "Arabic"},
    {0x0700, 0x074f, "Syriac", true},
    {0x0750, 0x077f, "Arabic"},
    {0x0780, 0x07bf, "Thaana"},
    {0x07c0, 0x07ff, "N'Ko", true},
    {0x08a0, 0x08ff, "Arabic"},
    {0x0900, 0x097f, "Devanagari", true},
    {0x0980, 0x09ff, "Bengali", true},
    {0x0a00, 0x0a7f, "Gurmukhi", true},
    {0x0a80, 0x0aff, "Gujarati", true},
    {0x0b00, 0x0b7f, "Oriya", true},
    {0x0b80, 0x0bff, "Tamil", true},
    {0x0c00, 0x0c7f, "Telugu", true},
    {0x0c80, 0x0cff, "Kannada", true},
    {0x0d00, 0x0d7f, "Malayalam", true},
    {0x0d80, 0x0dff, "Sinhala", true},
    {0x0e00, 0x0e7f, "Thai"},
    {0x0e80, 0x0eff, "Lao"},
    {0x0f00, 0x0fff, "Tibetan", true},
    {0x1000, 0x109f, "Burmese", true},
    {0x10a0, 0x10ff, "Georgian"},
    {0x1100, 0x11ff, "Korean"},
    {0x1200, 0x137f, "Ethiopic"},
    {0x13a0, 0x13ff, "Cherokee"},
    {0x1780, 0x17ff, "Khmer", true},
    {0x1800, 0x18af, "Mongolian", true},
    {0x2e80, 0x2fdf, "Chinese"},
    {0x3040, 0x30ff, "Japanese"},
    {0x3130, 0x318f, "Korean"},
    {0x3400, 0x9fff, "Chinese"},
    {0xac00, 0xd7a3, "Korean"},
    {0xf900, 0xfaff, "Chinese"},
    {0xfb50, 0xfdff, "Arabic"},
    {0xfe70, 0xfefc, "Arabic"},
};

const Script* find_script(char32_t c) {
  const auto found = std::ranges::find_if(
      kScripts, [&](const Script& script) { return c >= script.first && c <= script.last; });
  return found == std::end(kScripts) ? nullptr : found;
}

}  // namespace

std::string remark_on_scripts(std::string_view alphabet,
                              const std::function<bool(char32_t)>& lacks) {
  std::set<std::string_view> missing;
  std::set<std::string_view> unshaped;
  int n_missing = 0;
  for (const char32_t c : characters_of(alphabet)) {
    const Script* script = find_script(c);
    const bool is_missing = lacks(c);
    if (is_missing) ++n_missing;
    if (is_missing) missing.insert(script == nullptr ? "other" : script->name);
    if (!is_missing && script != nullptr && script->changes_letters) unshaped.insert(script->name);
  }
  std::string remark;
  if (!missing.empty()) {
    remark = fmt::format(
        "No installed font has {} characters of this text ({}), which are drawn as boxes: install "
        "one, as the packages fonts-noto-core and, for Chinese, Japanese and Korean, "
        "fonts-noto-cjk.",
        n_missing, fmt::join(missing, ", "));
  }
  if (!unshaped.empty()) {
    remark += fmt::format("{}{}: each letter is drawn by itself, not joined with its neighbours.",
                          remark.empty() ? "" : " ", fmt::join(unshaped, ", "));
  }
  return remark;
}

}  // namespace kvscope::gui
