// The real window: GLFW and OpenGL 3.3. It draws when something happened and sleeps otherwise.
//
//   while (!window.wants_close()) {
//     if (!window.wait(1.0)) continue;     // nothing happened: nothing is drawn
//     window.frame([&] { ... deliver finished jobs, draw with ImGui ... });
//   }
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gui/platform/backend.hpp"

namespace kvscope::gui {

/// One at a time per process (GLFW's state is global).
class Window final : public Backend {
 public:
  /// Of so many of the display's own units; times its scale where it has none. Throws IoError,
  /// saying what to do, without a display or without OpenGL 3.3.
  Window(int width, int height);
  ~Window() override;

  /// Waits until there is something to draw: input, wake(), request_redraw(), or the frames that
  /// ImGui needs to settle after these. False if `seconds` passed first.
  bool wait(double seconds);
  /// One more frame without waiting; from within a frame: the next one.
  void request_redraw();
  /// The same from any thread.
  void wake();
  bool wants_close() const;
  void set_wants_close(bool value);
  void set_title(const std::string& title);
  /// Files dropped on the window since the last call.
  std::vector<std::filesystem::path> take_dropped_files();
  /// The UI scale that the display asks for.
  double display_scale() const;
  TextureStore& texture_store() override;

 private:
  void begin_platform_frame() override;
  void upload_fonts() override;
  void draw(ImDrawData* data) override;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvscope::gui
