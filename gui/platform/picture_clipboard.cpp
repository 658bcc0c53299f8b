#include "gui/platform/picture_clipboard.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "core/base/start_program.hpp"

namespace kvscope::gui {

namespace {

namespace fs = std::filesystem;

std::string variable_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

bool is_installed(const std::string& program) {
  const std::string path = variable_of("PATH");
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find(':', at), path.size());
    const std::string file = path.substr(at, end - at) + "/" + program;
    if (end > at && ::access(file.c_str(), X_OK) == 0) return true;
    at = end + 1;
  }
  return false;
}

constexpr std::chrono::seconds kPatience{5};
constexpr std::chrono::milliseconds kLook{10};

/// Runs the program with the file as its input; a sentence if it failed. It is killed after
/// kPatience or on a stop: a clipboard that nobody serves would hold the window's end up.
std::string run_with_input(const std::vector<std::string>& words, const fs::path& file,
                           const std::stop_token& stop) {
  pid_t child = 0;
  try {
    const auto picture = Descriptor::open(file, O_RDONLY);
    // It stays in the background to serve the picture: it must not hold our output open.
    const auto nothing = Descriptor::open("/dev/null", O_WRONLY);
    child = start_program({words, {}, picture.get(), nothing.get(), nothing.get()});
  } catch (const IoError& e) {
    return e.what();
  }
  int status = 0;
  std::string why;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (pid_t ended = 0; (ended = ::waitpid(child, &status, WNOHANG)) != child;) {
    if (ended < 0 && errno != EINTR)
      return fmt::format("{} was lost: {}", words[0], std::strerror(errno));
    if (why.empty() && stop.stop_requested()) why = fmt::format("{} was stopped", words[0]);
    if (why.empty() && std::chrono::steady_clock::now() > end)
      why = fmt::format("{} did not take the picture within {} s", words[0], kPatience.count());
    if (!why.empty()) ::kill(child, SIGKILL);
    std::this_thread::sleep_for(kLook);
  }
  if (!why.empty()) return why;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0
             ? ""
             : fmt::format("{} did not take the picture", words[0]);
}

}  // namespace

fs::path picture_folder() {
  if (const auto folder = variable_of("KVSCOPE_CONFIG"); !folder.empty())
    return fs::path(folder) / "pictures";
  if (const auto folder = variable_of("XDG_CACHE_HOME"); !folder.empty())
    return fs::path(folder) / "kvscope" / "pictures";
  if (const auto home = variable_of("HOME"); !home.empty())
    return fs::path(home) / ".cache" / "kvscope" / "pictures";
  std::error_code error;
  return fs::temp_directory_path(error) / "kvscope-pictures";
}

std::string picture_to_clipboard(const fs::path& png, const std::stop_token& stop) {
  const bool has_wayland = !variable_of("WAYLAND_DISPLAY").empty();
  const bool has_x11 = !variable_of("DISPLAY").empty();
  if (has_wayland && is_installed("wl-copy"))
    return run_with_input({"wl-copy", "--type", "image/png"}, png, stop);
  if (has_x11 && is_installed("xclip"))
    return run_with_input({"xclip", "-selection", "clipboard", "-t", "image/png"}, png, stop);
  if (!has_wayland && !has_x11) return "there is no display whose clipboard could take it";
  return has_wayland ? "wl-copy (package wl-clipboard) is not installed" : "xclip is not installed";
}

}  // namespace kvscope::gui
