// The real window, where there is a display; and the sentence where there is none.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "core/base/error.hpp"
#include "gui/platform/window.hpp"

namespace kvscope::gui::window_test {
namespace {

bool has_display() {
  const char* display = std::getenv("DISPLAY");
  return display != nullptr && *display != '\0';
}

/// Takes a variable away for a while.
class Without {
 public:
  explicit Without(const char* name) : name_(name) {
    if (const char* value = std::getenv(name)) value_ = value;
    ::unsetenv(name);
  }
  ~Without() {
    if (value_) ::setenv(name_, value_->c_str(), 1);
  }

 private:
  const char* name_;
  std::optional<std::string> value_;
};

/// A display server that starts anew when its last client leaves refuses for a moment.
std::unique_ptr<Window> open(int width, int height) {
  for (int i = 0;; ++i) {
    try {
      return std::make_unique<Window>(width, height);
    } catch (const IoError&) {
      if (i == 40) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
}

/// Frames until nothing asks for more.
int draw_until_idle(Window& window) {
  int n = 0;
  while (n < 50 && window.wait(0.2)) {
    window.begin_frame();
    window.end_frame();
    ++n;
  }
  return n;
}

TEST_CASE("without a display there is a sentence with the next step", "[platform][window]") {
  const Without x("DISPLAY");
  const Without wayland("WAYLAND_DISPLAY");
  try {
    const Window window(1600, 900);
    FAIL("a window was opened without a display");
  } catch (const IoError& error) {
    const std::string text = error.what();
    CHECK(text.find("no display") != std::string::npos);
    CHECK(text.find("--screenshot") != std::string::npos);
  }
}

TEST_CASE("a window sleeps until something happens", "[platform][window]") {
  if (!has_display()) SKIP("there is no display");
  const auto opened = open(400, 300);
  Window& window = *opened;
  CHECK(draw_until_idle(window) >= 1);
  // nothing happens: no frame, no work
  const std::clock_t begin = std::clock();
  CHECK_FALSE(window.wait(0.5));
  CHECK(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC < 0.1);
  // another thread wakes it
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    window.wake();
  });
  const auto start = std::chrono::steady_clock::now();
  CHECK(window.wait(20.0));
  other.join();
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
  draw_until_idle(window);
  window.request_redraw();
  CHECK(window.wait(0.0));
  window.set_wants_close(true);
  CHECK(window.wants_close());
}

TEST_CASE("a window can be opened again", "[platform][window]") {
  if (!has_display()) SKIP("there is no display");
  for (int i = 0; i < 2; ++i) CHECK(draw_until_idle(*open(320, 240)) >= 1);
}

}  // namespace
}  // namespace kvscope::gui::window_test
