#include "gui/platform/gl_textures.hpp"

#include <GL/gl.h>
#include <GL/glext.h>
#include <backends/imgui_impl_opengl3.h>

#include <algorithm>

#include "core/base/error.hpp"

namespace kvscope::gui {

namespace {

GLuint name_of(ImTextureID id) {
  return static_cast<GLuint>(reinterpret_cast<std::uintptr_t>(id));
}

}  // namespace

GlTextureStore::GlTextureStore() {
  glGetIntegerv(GL_MAX_TEXTURE_SIZE, &max_side_);
}

ImTextureID GlTextureStore::create(int width, int height) {
  GLuint name = 0;
  glGenTextures(1, &name);
  glBindTexture(GL_TEXTURE_2D, name);
  glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MIN_FILTER, GL_LINEAR);
  glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MAG_FILTER, GL_NEAREST);
  glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_WRAP_S, GL_CLAMP_TO_EDGE);
  glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_WRAP_T, GL_CLAMP_TO_EDGE);
  glTexImage2D(GL_TEXTURE_2D, 0, GL_RGBA8, width, height, 0, GL_RGBA, GL_UNSIGNED_BYTE, nullptr);
  return reinterpret_cast<ImTextureID>(static_cast<std::uintptr_t>(name));
}

void GlTextureStore::write(ImTextureID id, int width, int height, const std::byte* rgba) {
  glBindTexture(GL_TEXTURE_2D, name_of(id));  // ImGui's renderer binds its own
  glPixelStorei(GL_UNPACK_ROW_LENGTH, 0);
  glTexSubImage2D(GL_TEXTURE_2D, 0, 0, 0, width, height, GL_RGBA, GL_UNSIGNED_BYTE, rgba);
}

void GlTextureStore::destroy(ImTextureID id) {
  const GLuint name = name_of(id);
  glDeleteTextures(1, &name);
}

std::string require_opengl_33() {
  GLint major = 0;
  GLint minor = 0;
  glGetIntegerv(GL_MAJOR_VERSION, &major);
  glGetIntegerv(GL_MINOR_VERSION, &minor);
  const auto* text = reinterpret_cast<const char*>(glGetString(GL_VERSION));
  const std::string version = text == nullptr ? "none" : text;
  if (major * 10 + minor < 33) {
    throw IoError(
        "the explorer draws with OpenGL 3.3, but the graphics driver has {}; update it, or set "
        "LIBGL_ALWAYS_SOFTWARE=1 to draw without it",
        version);
  }
  return version;
}

void upload_font_texture() {
  ImGui_ImplOpenGL3_DestroyFontsTexture();
  ImGui_ImplOpenGL3_CreateFontsTexture();
  ImGui::GetIO().Fonts->ClearTexData();
}

void clear_viewport(int width, int height, plot::Colour colour) {
  glViewport(0, 0, width, height);
  glDisable(GL_SCISSOR_TEST);
  glClearColor(static_cast<float>(colour.r) / 255.0F, static_cast<float>(colour.g) / 255.0F,
               static_cast<float>(colour.b) / 255.0F, 1.0F);
  glClear(GL_COLOR_BUFFER_BIT);
}

plot::Image read_pixels(int width, int height) {
  plot::Image image{width, height, {}};
  const std::size_t row = 4 * static_cast<std::size_t>(width);
  image.rgba.resize(row * static_cast<std::size_t>(height));
  glPixelStorei(GL_PACK_ROW_LENGTH, 0);
  glPixelStorei(GL_PACK_ALIGNMENT, 4);
  glReadPixels(0, 0, width, height, GL_RGBA, GL_UNSIGNED_BYTE, image.rgba.data());
  for (std::size_t i = 3; i < image.rgba.size(); i += 4) image.rgba[i] = 255;
  for (int y = 0; y < height / 2; ++y) {
    const auto top = image.rgba.begin() + static_cast<std::ptrdiff_t>(row) * y;
    const auto bottom = image.rgba.begin() + static_cast<std::ptrdiff_t>(row) * (height - 1 - y);
    std::swap_ranges(top, top + static_cast<std::ptrdiff_t>(row), bottom);
  }
  return image;
}

}  // namespace kvscope::gui
