// Textures in OpenGL; the context must be current whenever the store is used.
#pragma once

#include "analysis/plot/canvas.hpp"
#include "gui/render/textures.hpp"

namespace kvscope::gui {

class GlTextureStore final : public TextureStore {
 public:
  GlTextureStore();
  int max_side() const override { return max_side_; }

 protected:
  ImTextureID create(int width, int height) override;
  void write(ImTextureID id, int width, int height, const std::byte* rgba) override;
  void destroy(ImTextureID id) override;

 private:
  int max_side_ = 0;
};

/// "4.5 (Core Profile) Mesa 22.3.6" of the current context; throws IoError below 3.3.
std::string require_opengl_33();

/// Uploads the current ImGui context's letters and forgets their pixels in main memory.
void upload_font_texture();

/// Fills a viewport of that size.
void clear_viewport(int width, int height, plot::Colour colour);

/// The lower left part of what is bound for reading, opaque, row 0 on top.
plot::Image read_pixels(int width, int height);

}  // namespace kvscope::gui
