// Pictures on the clipboard. GLFW hands over text only, so a program that the desktop has does it.
#pragma once

#include <filesystem>
#include <stop_token>
#include <string>

namespace kvscope::gui {

/// Hands a PNG file to wl-copy (Wayland) or xclip (X11). Returns "" if one of them took it, else a
/// sentence: what is missing, or what went wrong. Waits for the program, at most some seconds; for
/// worker threads.
std::string picture_to_clipboard(const std::filesystem::path& png, const std::stop_token& stop);

}  // namespace kvscope::gui
