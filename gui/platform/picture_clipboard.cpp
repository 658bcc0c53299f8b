#include "gui/platform/picture_clipboard.hpp"

#include <fmt/format.h>

#include <csignal>
#include <cstdlib>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/run_program.hpp"

namespace kvscope::gui {

namespace {

namespace fs = std::filesystem;

bool has_value(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

constexpr int kNotFound = 127;  // as shells say it
constexpr int kTimedOut = 124;  // as timeout says it

/// Hands the file to the program as its input; a sentence if it failed. A clipboard that nobody
/// serves would hold the window's end up, so it has five seconds; what stays in the background to
/// serve the picture must not hold our output open.
std::string run_with_input(const std::string& program, const std::string& package,
                           const fs::path& file, const std::stop_token& stop) {
  const std::string line = fmt::format("exec timeout 5 {} < \"$1\" > /dev/null 2>&1", program);
  const std::string_view name = std::string_view(program).substr(0, program.find(' '));
  try {
    const int code =
        run_program(
            {"sh", "-c", line, "sh", file.string()}, [](const std::string&) {}, stop, SIGTERM)
            .code();
    if (code == kNotFound) return fmt::format("{} is not installed", package);
    if (stop.stop_requested()) return fmt::format("{} was stopped", name);
    if (code == kTimedOut) return fmt::format("{} did not take the picture within 5 s", name);
    return code == 0 ? "" : fmt::format("{} ended with code {}", name, code);
  } catch (const IoError& e) {
    return e.what();
  }
}

}  // namespace

std::string picture_to_clipboard(const fs::path& png, const std::stop_token& stop) {
  if (has_value("WAYLAND_DISPLAY")) {
    return run_with_input("wl-copy --type image/png", "wl-copy (package wl-clipboard)", png, stop);
  }
  if (has_value("DISPLAY"))
    return run_with_input("xclip -selection clipboard -t image/png", "xclip", png, stop);
  return "there is no display whose clipboard could take it";
}

}  // namespace kvscope::gui
