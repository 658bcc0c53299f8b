#include "gui/platform/offscreen.hpp"

#include <EGL/egl.h>
#include <EGL/eglext.h>
#include <GL/gl.h>
#include <GL/glext.h>
#include <backends/imgui_impl_opengl3.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/error.hpp"
#include "gui/platform/gl_textures.hpp"
#include "notebooks_export/cairo_canvas.hpp"

namespace kvscope::gui {

namespace {

[[noreturn]] void fail(const char* what) {
  throw IoError(
      "cannot draw without a display: {} (EGL error 0x{:x}); install Mesa's drivers "
      "(package libgl1-mesa-dri), or run under Xvfb",
      what, eglGetError());
}

/// An OpenGL context that needs no surface at all.
class SurfacelessContext {
 public:
  SurfacelessContext() {
    const char* extensions = eglQueryString(EGL_NO_DISPLAY, EGL_EXTENSIONS);
    const auto get_display = reinterpret_cast<PFNEGLGETPLATFORMDISPLAYEXTPROC>(
        eglGetProcAddress("eglGetPlatformDisplayEXT"));
    if (extensions == nullptr || get_display == nullptr ||
        std::strstr(extensions, "EGL_MESA_platform_surfaceless") == nullptr) {
      fail("EGL has no surfaceless platform here");
    }
    display_ = get_display(EGL_PLATFORM_SURFACELESS_MESA, EGL_DEFAULT_DISPLAY, nullptr);
    if (display_ == EGL_NO_DISPLAY || eglInitialize(display_, nullptr, nullptr) == EGL_FALSE) {
      fail("EGL does not start");
    }
    eglBindAPI(EGL_OPENGL_API);
    const EGLint wanted[] = {EGL_SURFACE_TYPE, EGL_PBUFFER_BIT, EGL_RENDERABLE_TYPE, EGL_OPENGL_BIT,
                             EGL_NONE};
    EGLConfig config = nullptr;
    EGLint n = 0;
    if (eglChooseConfig(display_, wanted, &config, 1, &n) == EGL_FALSE || n < 1) {
      fail("EGL offers no OpenGL");
    }
    const EGLint attributes[] = {EGL_CONTEXT_MAJOR_VERSION,
                                 3,
                                 EGL_CONTEXT_MINOR_VERSION,
                                 3,
                                 EGL_CONTEXT_OPENGL_PROFILE_MASK,
                                 EGL_CONTEXT_OPENGL_CORE_PROFILE_BIT,
                                 EGL_NONE};
    context_ = eglCreateContext(display_, config, EGL_NO_CONTEXT, attributes);
    if (context_ == EGL_NO_CONTEXT) fail("there is no OpenGL 3.3");
    make_current();
  }
  ~SurfacelessContext() {
    // the display stays: other contexts of this process may use it
    eglMakeCurrent(display_, EGL_NO_SURFACE, EGL_NO_SURFACE, EGL_NO_CONTEXT);
    eglDestroyContext(display_, context_);
  }
  SurfacelessContext(const SurfacelessContext&) = delete;
  SurfacelessContext& operator=(const SurfacelessContext&) = delete;

  void make_current() const {
    eglBindAPI(EGL_OPENGL_API);
    if (eglMakeCurrent(display_, EGL_NO_SURFACE, EGL_NO_SURFACE, context_) == EGL_FALSE) {
      fail("the OpenGL context cannot be used");
    }
  }

 private:
  EGLDisplay display_ = EGL_NO_DISPLAY;
  EGLContext context_ = EGL_NO_CONTEXT;
};

/// A picture to draw into.
class Target {
 public:
  Target(int width, int height) : width_(width), height_(height) {
    glGenFramebuffers(1, &framebuffer_);
    glGenRenderbuffers(1, &pixels_);
    glBindRenderbuffer(GL_RENDERBUFFER, pixels_);
    glRenderbufferStorage(GL_RENDERBUFFER, GL_RGBA8, width, height);
    bind();
    glFramebufferRenderbuffer(GL_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_RENDERBUFFER, pixels_);
    if (glCheckFramebufferStatus(GL_FRAMEBUFFER) != GL_FRAMEBUFFER_COMPLETE) {
      throw ConfigError("a picture of {} x {} pixels cannot be drawn; choose a smaller size", width,
                        height);
    }
  }
  ~Target() {
    glDeleteFramebuffers(1, &framebuffer_);
    glDeleteRenderbuffers(1, &pixels_);
  }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  void bind() const { glBindFramebuffer(GL_FRAMEBUFFER, framebuffer_); }
  int width() const { return width_; }
  int height() const { return height_; }

 private:
  GLuint framebuffer_ = 0;
  GLuint pixels_ = 0;
  int width_;
  int height_;
};

}  // namespace

struct Offscreen::Impl {
  SurfacelessContext context;
  std::string version = require_opengl_33();
  GlTextureStore textures;
  std::unique_ptr<Target> target;

  void make_target(ImVec2 size) {
    const double w = std::round(static_cast<double>(size.x));
    const double h = std::round(static_cast<double>(size.y));
    const double most = textures.max_side();
    if (!(w >= 1.0 && h >= 1.0 && w <= most && h <= most))
      throw ConfigError("a picture of {} x {} pixels cannot be drawn: 1 to {} a side", w, h, most);
    target.reset();
    target = std::make_unique<Target>(static_cast<int>(w), static_cast<int>(h));
  }
};

Offscreen::Offscreen(ImVec2 size) : size_(size), impl_(std::make_unique<Impl>()) {
  impl_->make_target(size);
  if (!ImGui_ImplOpenGL3_Init("#version 330")) {
    fail("ImGui finds no OpenGL functions");
  }
  ImGui_ImplOpenGL3_NewFrame();  // makes its shaders now, so that a failure is seen here
}

Offscreen::~Offscreen() {
  impl_->context.make_current();
  ImGui::SetCurrentContext(imgui());
  ImGui_ImplOpenGL3_Shutdown();
  impl_->textures.collect();
  destroy_context();
}

TextureStore& Offscreen::texture_store() {
  return impl_->textures;
}

/// Time passes by 1/60 s per frame, so that nothing depends on the clock.
void Offscreen::begin_platform_frame() {
  impl_->context.make_current();
  ImGui_ImplOpenGL3_NewFrame();
  ImGuiIO& io = ImGui::GetIO();
  io.DisplaySize = {std::max(1.0F, size_.x), std::max(1.0F, size_.y)};
  io.DeltaTime = 1.0F / 60.0F;
}

void Offscreen::upload_fonts() {
  impl_->context.make_current();
  upload_font_texture();
}

void Offscreen::draw(ImDrawData* data) {
  impl_->target->bind();
  clear_viewport(impl_->target->width(), impl_->target->height(), ground());
  ImGui_ImplOpenGL3_RenderDrawData(data);
  glFinish();
}

plot::Image Offscreen::image() const {
  impl_->context.make_current();
  impl_->target->bind();
  return read_pixels(impl_->target->width(), impl_->target->height());
}

std::string Offscreen::png() const {
  return encode_png(image());
}

}  // namespace kvscope::gui
