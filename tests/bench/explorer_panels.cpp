// How long a frame of the whole explorer takes while a panel is moved: the real app with a real
// trace, drawn without a display at 1600x900.
//
//   build/release/tests/bench_explorer_panels TRACE.h5 [FRAMES]
//
// For the attention map, the geometry flat and turned in 3D, the token strip, the panel with the
// most words (why) and the overview of all: milliseconds per frame (smallest, median, largest)
// while nothing happens, while the mouse drags across the panel, and while the wheel zooms.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "core/base/error.hpp"
#include "gui/app/app.hpp"
#include "gui/platform/offscreen.hpp"

namespace {

using namespace kvscope;
using namespace kvscope::gui;
using Clock = std::chrono::steady_clock;

struct Bench {
  Offscreen backend{{1600, 900}};
  App app{AppOptions{}, backend.fonts(), backend.texture_store()};

  void frame() {
    backend.set_ground(app.look().surface);
    backend.frame([&] { app.frame(1.0f); });
  }
  void settle() {
    for (int calm = 0; calm < 4;) {
      frame();
      calm = app.is_busy() ? 0 : calm + 1;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  void measure(const char* what, int n_frames, const std::function<void(int)>& before) {
    std::vector<double> times;
    for (int i = 0; i < n_frames; ++i) {
      before(i);
      const auto start = Clock::now();
      frame();
      times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    }
    std::sort(times.begin(), times.end());
    fmt::print("  {:<12} {:7.1f} {:7.1f} {:7.1f}\n", what, times.front(), times[times.size() / 2],
               times.back());
  }
  void run(const char* name, const Area& area, int n_frames) {
    fmt::print("{}\n", name);
    const ImVec2 middle{area.x + area.w * 0.5f, area.y + area.h * 0.55f};
    backend.move_mouse(middle);
    settle();
    measure("still", n_frames, [](int) {});
    // In first, so that there is somewhere to drag to.
    measure("zooming", n_frames, [&](int i) { backend.scroll(i % 2 == 0 ? 1.0f : 0.4f); });
    backend.press_button();
    frame();
    measure("dragging", n_frames, [&](int i) {
      const float along = static_cast<float>(i) / static_cast<float>(n_frames) - 0.5f;
      backend.move_mouse({middle.x + along * area.w * 0.5f, middle.y + along * area.h * 0.3f});
    });
    backend.release_button();
    settle();
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: bench_explorer_panels TRACE.h5 [FRAMES]\n");
    return 2;
  }
  try {
    const int n_frames = argc > 2 ? std::max(4, std::atoi(argv[2])) : 60;
    Bench bench;
    bench.app.open(argv[1]);
    bench.settle();
    fmt::print("ms per frame, 1600x900    best  median   worst\n");
    for (const char* panel : {"attention-map", "geometry", "tokens", "why"}) {
      bench.app.show_panel_alone(panel);
      bench.settle();
      bench.run(panel, *bench.app.area_of(panel), n_frames);
    }
    bench.app.panel("geometry").set_options({{"is_3d", true}});
    bench.app.show_panel_alone("geometry");
    bench.settle();
    bench.run("geometry in 3D", *bench.app.area_of("geometry"), n_frames);
    bench.app.show_layout("overview");
    bench.settle();
    bench.run("overview, over its map", *bench.app.area_of("attention-map"), n_frames);
  } catch (const Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
  return 0;
}
