// The explorer without a display: OpenGL by EGL without any surface, drawn into memory.
#pragma once

#include <memory>
#include <string>

#include "analysis/plot/canvas.hpp"
#include "gui/platform/backend.hpp"

namespace kvscope::gui {

class Offscreen final : public Backend {
 public:
  /// Throws IoError, saying what to do, if there is no EGL without surfaces or no OpenGL 3.3, and
  /// ConfigError for a size that cannot be drawn.
  explicit Offscreen(ImVec2 size = {1600, 900});
  ~Offscreen() override;
  TextureStore& texture_store() override;

  /// The last frame's pixels, opaque.
  plot::Image image() const;
  /// The same as a PNG file's bytes.
  std::string png() const;

 private:
  void begin_platform_frame() override;
  void upload_fonts() override;
  void draw(ImDrawData* data) override;

  ImVec2 size_;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvscope::gui
