// Fonts of this system for what the figures' font lacks.
#pragma once

#include <filesystem>
#include <vector>

namespace kvscope::gui {

/// A font in a file, which may hold several.
struct SystemFont {
  std::filesystem::path file;
  int face = 0;
};

/// Installed outline fonts that have the character: upright ones of usual weight first, and of
/// these those without serifs. Empty if none has it. From the thread of the interface alone.
std::vector<SystemFont> system_fonts_with(char32_t character);

}  // namespace kvscope::gui
