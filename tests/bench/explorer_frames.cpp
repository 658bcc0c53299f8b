// How long a frame of the explorer takes without a GPU: a cloud of 200k points and a map of
// 2048 x 2048 cells at 1600x900, standing still, under a moving mouse and while zooming.
//
//   build/release/tests/bench_explorer [FRAMES]
//
// Prints milliseconds per frame (smallest and median, and CPU time of all threads). Draws with
// whatever OpenGL EGL finds without a display: Mesa's llvmpipe where there is no GPU.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/rng.hpp"
#include "gui/platform/offscreen.hpp"
#include "gui/render/figure_view.hpp"

namespace {

using namespace kvscope;
using Clock = std::chrono::steady_clock;

constexpr float kWidth = 1600.0F;
constexpr float kHeight = 900.0F;

plot::Figure cloud() {
  const CounterRng rng{7};
  plot::Scatter points;
  for (std::uint64_t i = 0; i < 200000; ++i) {
    points.x.push_back(rng.normal(2 * i));
    points.y.push_back(0.5 * points.x.back() + rng.normal(2 * i + 1));
    points.value.push_back(points.x.back());
  }
  points.opacity = 0.6;
  plot::Panel panel;
  panel.x.label = "PC1";
  panel.y.label = "PC2";
  panel.marks = {points};
  panel.colour = plot::ColourAxis{};
  panel.colour->axis.label = "$S_q$";
  plot::Figure figure;
  figure.name = "cloud";
  figure.panels = {panel};
  return figure;
}

plot::Figure map() {
  const CounterRng rng{8};
  constexpr Index kSide = 2048;
  plot::HeatMap cells;
  cells.n_rows = cells.n_cols = kSide;
  cells.x = cells.y = {0.0, static_cast<double>(kSide)};
  for (Index row = 0; row < kSide; ++row) {
    for (Index col = 0; col < kSide; ++col) {
      const double far = static_cast<double>(std::abs(row - col) + 1);
      cells.values.push_back(
          col > row
              ? std::nanf("")
              : static_cast<float>(
                    (0.1 + rng.uniform(static_cast<std::uint64_t>(row * kSide + col))) / far));
    }
  }
  plot::Panel panel;
  panel.x.label = "Key";
  panel.y.label = "Query";
  panel.y.reversed = true;
  panel.marks = {cells};
  panel.colour = plot::ColourAxis{};
  panel.colour->axis.scale = plot::ScaleKind::log10;
  panel.colour->axis.label = "Attention";
  plot::Figure figure;
  figure.name = "map";
  figure.panels = {panel};
  return figure;
}

struct Times {
  std::vector<double> wall;
  double cpu = 0.0;
};

template <class Step>
Times measure(gui::Offscreen& screen, const std::function<void()>& draw, int n, Step step) {
  Times times;
  const std::clock_t begin = std::clock();
  for (int i = 0; i < n; ++i) {
    step(i);
    const auto start = Clock::now();
    screen.frame(draw);
    times.wall.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  times.cpu = 1e3 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC / n;
  std::sort(times.wall.begin(), times.wall.end());
  return times;
}

void print(const std::string& what, const Times& times) {
  fmt::print("{:<34} {:7.1f} {:7.1f} {:7.1f}\n", what, times.wall.front(),
             times.wall[times.wall.size() / 2], times.cpu);
}

void run(const std::string& name, const plot::Figure& figure, int n) {
  gui::Offscreen screen({kWidth, kHeight});
  screen.set_ground({255, 255, 255, 1.0});
  gui::FigureView view;
  const auto draw = [&] {
    ImGui::SetNextWindowPos({0.0F, 0.0F});
    ImGui::SetNextWindowSize({kWidth, kHeight});
    ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {0.0F, 0.0F});
    ImGui::Begin("bench", nullptr, ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoBackground);
    gui::FigureStyle style;
    view.show(screen.fonts(), screen.texture_store(), figure, {kWidth, kHeight}, style);
    ImGui::End();
    ImGui::PopStyleVar();
  };
  print(name + ": first frame", measure(screen, draw, 1, [](int) {}));
  measure(screen, draw, 4, [](int) {});
  print(name + ": static", measure(screen, draw, n, [](int) {}));
  print(name + ": mouse moves", measure(screen, draw, n, [&](int i) {
          ImGui::GetIO().MousePos = {500.0F + 7.0F * static_cast<float>(i), 450.0F};
        }));
  ImGui::GetIO().MousePos = {800.0F, 450.0F};
  print(name + ": zooming in", measure(screen, draw, n, [&](int i) {
          ImGui::GetIO().MouseWheel += i < n / 2 ? 0.5F : -0.5F;
        }));
  ImGui::GetIO().MouseDown[0] = true;
  print(name + ": dragging", measure(screen, draw, n, [&](int i) {
          ImGui::GetIO().MousePos = {800.0F + 9.0F * static_cast<float>(i % 20), 450.0F};
        }));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int n = argc > 1 ? std::clamp(std::atoi(argv[1]), 2, 1000) : 20;
    fmt::print("{:<34} {:>7} {:>7} {:>7}\n", "ms per frame, 1600x900", "best", "median", "CPU");
    gui::Offscreen screen({kWidth, kHeight});
    print("empty frame", measure(
                             screen, [] {}, n, [](int) {}));
    run("200k points", cloud(), n);
    run("map of 2048 x 2048", map(), n);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 3;
  }
  return 0;
}
