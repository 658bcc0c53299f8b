// Pictures on the clipboard. GLFW hands over text only, so a program that the desktop has does it.
#pragma once

#include <filesystem>
#include <string>

namespace kvscope::gui {

/// Where pictures for the clipboard are kept: $XDG_CACHE_HOME or ~/.cache, kvscope/pictures.
std::filesystem::path picture_folder();

/// Hands a PNG file to wl-copy (Wayland) or xclip (X11). Returns "" if one of them took it, else a
/// sentence: what is missing, or what went wrong. Waits for the program; for worker threads.
std::string picture_to_clipboard(const std::filesystem::path& png);

}  // namespace kvscope::gui
