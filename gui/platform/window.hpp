// The real window: GLFW and OpenGL 3.3. It draws when something happened and sleeps otherwise.
//
//   while (!window.wants_close()) {
//     if (!window.wait(1.0)) continue;     // nothing happened: nothing is drawn
//     window.frame([&] { ... deliver finished jobs, draw with ImGui ... });
//   }
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gui/platform/backend.hpp"

namespace kvscope::gui {

struct WindowOptions {
  std::string title = "kvscope explorer";
  int width = 1600;  // in the display's own units; times the scale where it has none
  int height = 900;
  std::optional<double> scale;  // of the interface [what the monitor asks for]
  bool visible = true;
};

/// One at a time per process (GLFW's state is global).
class Window final : public Backend {
 public:
  /// Throws IoError, saying what to do, without a display or without OpenGL 3.3.
  explicit Window(const WindowOptions& options);
  ~Window() override;

  /// Waits until there is something to draw: input, wake(), request_redraw(), or the frames that
  /// ImGui needs to settle after these. False if `seconds` passed first.
  bool wait(double seconds);
  void wake() override;
  bool wants_close() const;
  void set_wants_close(bool value);
  void set_title(const std::string& title);
  /// Files dropped on the window since the last call.
  std::vector<std::filesystem::path> take_dropped_files();
  ImVec2 size() const override;
  /// The UI scale that the display asks for.
  double display_scale() const;
  TextureStore& texture_store() override;
  /// The last frame's pixels, for screenshots; between frames.
  plot::Image image();

 private:
  void begin_platform_frame() override;
  void upload_fonts() override;
  void draw(ImDrawData* data) override;
  /// Into the back buffer; returns its size in pixels.
  ImVec2 paint(ImDrawData* data);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvscope::gui
