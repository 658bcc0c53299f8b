// A frame of the explorer under speed_guard: a map of 2048 x 2048 cells at 1600x900 that is zoomed
// and rests, drawn without a display, beside a frame with one picture.
#include <cmath>
#include <memory>

#include "core/base/rng.hpp"
#include "gui/platform/offscreen.hpp"
#include "gui/render/figure_view.hpp"
#include "tests/bench/speed_guard.hpp"

namespace kvscope::bench {

namespace {

constexpr float kWidth = 1600.0F;
constexpr float kHeight = 900.0F;

plot::Figure map() {
  const CounterRng rng{8};
  constexpr Index kSide = 2048;
  plot::HeatMap cells;
  cells.n_rows = cells.n_cols = kSide;
  cells.x = cells.y = {0.0, static_cast<double>(kSide)};
  for (Index row = 0; row < kSide; ++row) {
    for (Index col = 0; col < kSide; ++col) {
      const double weight = 0.1 + rng.uniform(static_cast<std::uint64_t>(row * kSide + col));
      cells.values.push_back(col > row
                                 ? std::nanf("")
                                 : static_cast<float>(weight / static_cast<double>(row - col + 1)));
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

/// Both draw into the same memory; a frame ends when its pixels are there.
struct Screen {
  gui::Offscreen screen{{kWidth, kHeight}};
  gui::FigureView view{screen.fonts(), screen.texture_store()};
  plot::Figure figure = map();
  gui::Texture picture;

  Screen() {
    screen.set_ground({255, 255, 255, 1.0});
    plot::Image image;
    image.width = 400;
    image.height = 225;
    for (int i = 0; i < image.width * image.height; ++i)
      for (const int byte : {i % 251, i % 13, i % 127, 255})
        image.rgba.push_back(static_cast<std::uint8_t>(byte));
    picture = gui::Texture(screen.texture_store(), image, gui::Filter::nearest);
    screen.move_mouse({800.0F, 450.0F});
  }

  void draw_map() {
    ImGui::SetNextWindowPos({0.0F, 0.0F});
    ImGui::SetNextWindowSize({kWidth, kHeight});
    ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {0.0F, 0.0F});
    ImGui::Begin("map", nullptr, ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoBackground);
    gui::FigureStyle style;
    view.show(figure, 1, {kWidth, kHeight}, style);
    ImGui::End();
    ImGui::PopStyleVar();
  }

  void draw_picture() const {
    ImGui::GetForegroundDrawList()->AddImage(picture.id(), {0.0F, 0.0F}, {kWidth, kHeight});
  }
};

}  // namespace

Subject map_frame() {
  const auto screen = std::make_shared<Screen>();
  // Time passes by 1/60 s a frame: ten frames later the zoomed map is complete and stands still.
  const auto ours = [screen, is_in = false]() mutable {
    is_in = !is_in;
    return timed([&] {
      for (int i = 0; i < 4; ++i) {
        screen->screen.scroll(is_in ? 0.5F : -0.5F);
        screen->screen.frame([&] { screen->draw_map(); });
      }
      for (int i = 0; i < 10; ++i) screen->screen.frame([&] { screen->draw_map(); });
    });
  };
  const auto reference = [screen] {
    return timed([&] {
      for (int i = 0; i < 8; ++i) screen->screen.frame([&] { screen->draw_picture(); });
    });
  };
  return {ours, reference};
}

}  // namespace kvscope::bench
