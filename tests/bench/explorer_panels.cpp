// How long a frame of the whole explorer takes while a panel is moved: the real app with a real
// trace, drawn without a display at 1600x900.
//
//   build/release/tests/bench_explorer_panels TRACE.h5 [FRAMES] [pages]
//
// For the attention map, the geometry flat and turned in 3D, the token strip, the panel with the
// most words (why) and the overview of all: milliseconds per frame (smallest, median, largest)
// while nothing happens, while the mouse drags across the panel, and while the wheel zooms. Of the
// reading page and the head atlas at 1280x800 seconds from opening to the first picture with what
// the page is about, and until all is computed; then milliseconds of the window's own thread, per
// event and all frames that follow from it, and frames per second while the wheel turns; with a
// third argument these alone.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "gui/app/app.hpp"
#include "gui/platform/offscreen.hpp"
#include "tests/gui/platform/null_backend.hpp"

namespace {

using namespace kvscope;
using namespace kvscope::gui;
using Clock = std::chrono::steady_clock;

struct Bench {
  std::unique_ptr<Backend> made;
  Backend& backend = *made;
  std::atomic<bool> is_woken = false;  // by a job
  App app{options(), backend.fonts(), backend.texture_store()};

  explicit Bench(std::unique_ptr<Backend> draws_on) : made(std::move(draws_on)) {}

  AppOptions options() {
    AppOptions options;
    options.wake = [this] { is_woken = true; };
    return options;
  }

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
  static void say(const char* what, std::vector<double> times) {
    std::sort(times.begin(), times.end());
    fmt::print("  {:<12} {:7.1f} {:7.1f} {:7.1f}\n", what, times.front(), times[times.size() / 2],
               times.back());
  }
  void measure(const char* what, int n_frames, const std::function<void(int)>& before) {
    std::vector<double> times;
    for (int i = 0; i < n_frames; ++i) {
      before(i);
      const auto start = Clock::now();
      frame();
      times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    }
    say(what, std::move(times));
  }
  static double thread_ms() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
  }
  /// As a window does: sleeps until a job has news, unless something moves.
  void wait_for_news() {
    while (app.is_busy() && !app.wants_redraw() && !is_woken)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  /// As a window does: frames after an event, after news of a job, and while something moves.
  void measure_events(const char* what, int n_events, const std::function<void(int)>& event) {
    std::vector<double> times;
    int n_frames = 0;
    for (int i = 0; i < n_events; ++i) {
      event(i);
      const double start = thread_ms();
      do {
        is_woken = false;
        frame();
        ++n_frames;
        wait_for_news();
      } while (app.wants_redraw() || is_woken);
      times.push_back(thread_ms() - start);
    }
    say(what, std::move(times));
    fmt::print("    {:.1f} frames per event\n", static_cast<double>(n_frames) / n_events);
  }
  void run(const char* name, const Area& area, int n_frames) {
    fmt::print("{}\n", name);
    const ImVec2 middle{area.x + area.w * 0.5f, area.y + area.h * 0.55f};
    ImGui::GetIO().MousePos = middle;
    settle();
    measure("still", n_frames, [](int) {});
    // In first, so that there is somewhere to drag to.
    measure("zooming", n_frames,
            [&](int i) { ImGui::GetIO().MouseWheel += i % 2 == 0 ? 1.0f : 0.4f; });
    ImGui::GetIO().MouseDown[0] = true;
    frame();
    measure("dragging", n_frames, [&](int i) {
      const float along = static_cast<float>(i) / static_cast<float>(n_frames) - 0.5f;
      ImGui::GetIO().MousePos = {middle.x + along * area.w * 0.5f,
                                 middle.y + along * area.h * 0.3f};
    });
    ImGui::GetIO().MouseDown[0] = false;
    settle();
  }
};

/// A layout and the panel that it is about.
struct Page {
  const char* layout;
  const char* panel;
};

void measure_page(const char* trace, const Page& page, const char* how,
                  std::unique_ptr<Backend> draws_on, int n_events) {
  Bench bench(std::move(draws_on));
  bench.frame();
  const auto begin = Clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  bench.app.open(trace);
  bench.app.show_layout(page.layout);
  do {
    bench.wait_for_news();
    bench.is_woken = false;
    bench.frame();
  } while (!bench.app.area_of(page.panel) || !bench.app.panel(page.panel).csv() ||
           bench.app.panel(page.panel).landmarks().empty());
  const double first = passed();
  bench.settle();
  fmt::print("{}, {}: first picture after {:.2f} s, whole after {:.2f} s\n", page.layout, how,
             first, passed());
  const Area area = *bench.app.area_of(page.panel);
  const ImVec2 middle{area.x + area.w * 0.5f, area.y + area.h * 0.55f};
  ImGui::GetIO().MousePos = middle;
  bench.settle();
  bench.measure_events("still", n_events, [](int) {});
  const auto turned = Clock::now();
  bench.measure_events("wheel", n_events, [&](int) { ImGui::GetIO().MouseWheel += 1.0f; });
  const std::chrono::duration<double> turning = Clock::now() - turned;
  fmt::print("    {:.0f} steps of the wheel a second\n", n_events / turning.count());
  bench.measure_events("mouse moves", n_events, [&](int i) {
    const float along = static_cast<float>(i) / static_cast<float>(n_events) - 0.5f;
    ImGui::GetIO().MousePos = {middle.x + along * area.w * 0.5f, middle.y + along * area.h * 0.3f};
  });
}

int measure_pages(const char* trace, int n_events) {
  fmt::print("ms of the window's thread per event, pages at 1280x800\n");
  for (const Page& page : {Page{"reading", "tokens"}, Page{"atlas", "heads"}}) {
    measure_page(trace, page, "drawn by OpenGL", std::make_unique<Offscreen>(ImVec2{1280, 800}),
                 n_events);
    measure_page(trace, page, "not drawn", std::make_unique<NullBackend>(ImVec2{1280, 800}),
                 n_events);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: bench_explorer_panels TRACE.h5 [FRAMES] [pages]\n");
    return 2;
  }
  try {
    const int n_frames = argc > 2 ? std::max(4, std::atoi(argv[2])) : 60;
    if (argc > 3) return measure_pages(argv[1], n_frames);
    Bench bench(std::make_unique<Offscreen>(ImVec2{1600, 900}));
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
    measure_pages(argv[1], n_frames);
  } catch (const Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
  return 0;
}
