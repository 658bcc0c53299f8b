#include "gui/platform/window.hpp"

#define GLFW_INCLUDE_NONE
#include <GL/gl.h>
#include <GLFW/glfw3.h>
#include <backends/imgui_impl_glfw.h>
#include <backends/imgui_impl_opengl3.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <optional>

#include "core/base/error.hpp"
#include "gui/platform/gl_textures.hpp"
#include "gui/platform/key_queue.hpp"

namespace kvscope::gui {

namespace {

/// What GLFW complained about last.
std::string& last_complaint() {
  static std::string text;
  return text;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

constexpr const char* kWithoutDisplay =
    "use --screenshot FILE to draw without one, or connect with ssh -X";

/// GLFW while a window lives.
class GlfwLibrary {
 public:
  GlfwLibrary() {
    last_complaint().clear();
    glfwSetErrorCallback([](int, const char* text) { last_complaint() = text; });
    if (glfwInit() == GLFW_TRUE) return;
    const std::string display = environment("DISPLAY");
    const std::string wayland = environment("WAYLAND_DISPLAY");
    if (display.empty() && wayland.empty()) {
      throw IoError(
          "no window can be opened: there is no display (DISPLAY and WAYLAND_DISPLAY "
          "are not set); {}",
          kWithoutDisplay);
    }
    throw IoError("no window can be opened on the display \"{}\": {}; {}",
                  display.empty() ? wayland : display, last_complaint(), kWithoutDisplay);
  }
  ~GlfwLibrary() { glfwTerminate(); }
  GlfwLibrary(const GlfwLibrary&) = delete;
  GlfwLibrary& operator=(const GlfwLibrary&) = delete;
};

struct WindowDeleter {
  void operator()(GLFWwindow* window) const { glfwDestroyWindow(window); }
};
using WindowHandle = std::unique_ptr<GLFWwindow, WindowDeleter>;

double monitor_scale() {
  GLFWmonitor* monitor = glfwGetPrimaryMonitor();
  if (monitor == nullptr) return 1.0;
  float x = 1.0F;
  float y = 1.0F;
  glfwGetMonitorContentScale(monitor, &x, &y);
  return std::clamp(static_cast<double>(std::max(x, y)), 0.5, 4.0);
}

WindowHandle open_window(int width, int height) {
  glfwWindowHint(GLFW_CONTEXT_VERSION_MAJOR, 3);
  glfwWindowHint(GLFW_CONTEXT_VERSION_MINOR, 3);
  glfwWindowHint(GLFW_OPENGL_PROFILE, GLFW_OPENGL_CORE_PROFILE);
  glfwWindowHint(GLFW_OPENGL_FORWARD_COMPAT, GLFW_TRUE);
  const double scale = monitor_scale();
  if (GLFWmonitor* monitor = glfwGetPrimaryMonitor(); monitor != nullptr && scale > 1.0) {
    // as large to the eye as asked for, as far as the screen goes
    int x = 0;
    int y = 0;
    int w = 0;
    int h = 0;
    glfwGetMonitorWorkarea(monitor, &x, &y, &w, &h);
    if (w > 0 && h > 0) {
      width = std::min(static_cast<int>(width * scale), w);
      height = std::min(static_cast<int>(height * scale), h);
    }
  }
  WindowHandle window(glfwCreateWindow(std::max(1, width), std::max(1, height), "kvscope explorer",
                                       nullptr, nullptr));
  if (!window) {
    throw IoError(
        "no window with OpenGL 3.3 can be opened: {}; update the graphics driver, set "
        "LIBGL_ALWAYS_SOFTWARE=1 to draw without it, or use --screenshot FILE",
        last_complaint());
  }
  return window;
}

/// ImGui needs a frame to act on input and another one for what that changed.
constexpr int kFramesPerEvent = 3;

}  // namespace

struct Window::Impl {
  Impl(int width, int height) : handle(open_window(width, height)) {
    glfwMakeContextCurrent(handle.get());
    glfwSwapInterval(1);
    require_opengl_33();
    textures.emplace();
    glfwSetWindowUserPointer(handle.get(), this);
    watch();
    glfwSetWindowSizeLimits(handle.get(), 320, 240, GLFW_DONT_CARE, GLFW_DONT_CARE);
  }

  static Impl& of(GLFWwindow* window) {
    return *static_cast<Impl*>(glfwGetWindowUserPointer(window));
  }
  void note_event() { frames_wanted = kFramesPerEvent; }

  /// Every event that a frame may show. ImGui's callbacks, installed later, call these.
  void watch() {
    GLFWwindow* w = handle.get();
    glfwSetCursorPosCallback(w, [](GLFWwindow* g, double, double) { of(g).note_event(); });
    glfwSetCursorEnterCallback(w, [](GLFWwindow* g, int) { of(g).note_event(); });
    glfwSetMouseButtonCallback(w, [](GLFWwindow* g, int, int, int) { of(g).note_event(); });
    glfwSetScrollCallback(w, [](GLFWwindow* g, double, double) { of(g).note_event(); });
    glfwSetWindowFocusCallback(w, [](GLFWwindow* g, int) {
      of(g).keys.clear();
      of(g).note_event();
    });
    glfwSetWindowRefreshCallback(w, [](GLFWwindow* g) { of(g).note_event(); });
    glfwSetFramebufferSizeCallback(w, [](GLFWwindow* g, int, int) { of(g).note_event(); });
    glfwSetWindowIconifyCallback(w, [](GLFWwindow* g, int) { of(g).note_event(); });
    glfwSetWindowCloseCallback(w, [](GLFWwindow* g) { of(g).note_event(); });
    glfwSetWindowContentScaleCallback(w, [](GLFWwindow* g, float, float) { of(g).note_event(); });
    glfwSetDropCallback(w, [](GLFWwindow* g, int n, const char** paths) {
      for (int i = 0; i < n; ++i) of(g).dropped.emplace_back(paths[i]);
      of(g).note_event();
    });
  }

  /// Instead of ImGui's callbacks, which forget a key that is down for less than a frame.
  void watch_keys() {
    GLFWwindow* w = handle.get();
    glfwSetKeyCallback(w, [](GLFWwindow* g, int key, int, int action, int) {
      if (action != GLFW_REPEAT) of(g).keys.key(key, action == GLFW_PRESS);
      of(g).note_event();
    });
    glfwSetCharCallback(w, [](GLFWwindow* g, unsigned codepoint) {
      of(g).keys.letter(codepoint);
      of(g).note_event();
    });
  }

  GlfwLibrary library;
  WindowHandle handle;
  std::optional<GlTextureStore> textures;
  std::vector<std::filesystem::path> dropped;
  KeyQueue keys;
  int frames_wanted = kFramesPerEvent;
  std::atomic<bool> woken = false;
};

Window::Window(int width, int height) : impl_(std::make_unique<Impl>(width, height)) {
  fonts().set_scale(monitor_scale());
  ImGui::SetCurrentContext(imgui());
  if (!ImGui_ImplGlfw_InitForOpenGL(impl_->handle.get(), /*install_callbacks=*/true) ||
      !ImGui_ImplOpenGL3_Init("#version 330")) {
    throw IoError("the window's drawing cannot be started: {}; use --screenshot FILE",
                  last_complaint());
  }
  impl_->watch_keys();
  ImGui_ImplOpenGL3_NewFrame();  // makes its shaders now, so that a failure is seen here
}

Window::~Window() {
  glfwMakeContextCurrent(impl_->handle.get());
  ImGui::SetCurrentContext(imgui());
  impl_->textures->collect();
  ImGui_ImplOpenGL3_Shutdown();
  ImGui_ImplGlfw_Shutdown();
  destroy_context();
}

bool Window::wait(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  glfwPollEvents();
  for (;;) {
    if (impl_->woken.exchange(false) || fonts().is_stale()) request_redraw();
    const bool hidden = glfwGetWindowAttrib(impl_->handle.get(), GLFW_ICONIFIED) == GLFW_TRUE;
    if (impl_->frames_wanted > 0 && !hidden) {
      --impl_->frames_wanted;
      return true;
    }
    if (wants_close()) return true;
    const double rest = std::chrono::duration<double>(end - Clock::now()).count();
    if (rest <= 0.0) return false;
    glfwWaitEventsTimeout(rest);
  }
}

void Window::request_redraw() {
  impl_->frames_wanted = std::max(impl_->frames_wanted, 1);
}

void Window::wake() {
  impl_->woken = true;
  glfwPostEmptyEvent();
}

bool Window::wants_close() const {
  return glfwWindowShouldClose(impl_->handle.get()) == GLFW_TRUE;
}

void Window::set_wants_close(bool value) {
  glfwSetWindowShouldClose(impl_->handle.get(), value ? GLFW_TRUE : GLFW_FALSE);
}

void Window::set_title(const std::string& title) {
  glfwSetWindowTitle(impl_->handle.get(), title.c_str());
}

std::vector<std::filesystem::path> Window::take_dropped_files() {
  return std::exchange(impl_->dropped, {});
}

double Window::display_scale() const {
  return monitor_scale();
}

TextureStore& Window::texture_store() {
  return *impl_->textures;
}

void Window::begin_platform_frame() {
  glfwMakeContextCurrent(impl_->handle.get());
  ImGui_ImplOpenGL3_NewFrame();
  ImGui_ImplGlfw_NewFrame();
  if (impl_->keys.feed(ImGui::GetIO())) impl_->note_event();
}

void Window::upload_fonts() {
  glfwMakeContextCurrent(impl_->handle.get());
  upload_font_texture();
}

void Window::draw(ImDrawData* data) {
  int w = 0;
  int h = 0;
  glfwGetFramebufferSize(impl_->handle.get(), &w, &h);
  clear_viewport(w, h, ground());
  if (data != nullptr) ImGui_ImplOpenGL3_RenderDrawData(data);
  glfwSwapBuffers(impl_->handle.get());
}

}  // namespace kvscope::gui
