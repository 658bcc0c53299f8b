// The invisible picture: real pixels without a display, judged by their properties.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "core/base/error.hpp"
#include "gui/platform/offscreen.hpp"
#include "gui/render/figure_view.hpp"

namespace kvscope::gui::offscreen_test {
namespace {

struct Pixel {
  int r, g, b;
  bool operator==(const Pixel&) const = default;
};

Pixel pixel_at(const plot::Image& image, double x, double y) {
  const auto at = 4 * (static_cast<std::size_t>(y) * static_cast<std::size_t>(image.width) +
                       static_cast<std::size_t>(x));
  return {image.rgba[at], image.rgba[at + 1], image.rgba[at + 2]};
}

TEST_CASE("a figure's pixels have its colours where its data are", "[platform][offscreen]") {
  plot::HeatMap map{
      .n_rows = 1, .n_cols = 2, .values = {0.0F, 1.0F}, .x = {0.0, 2.0}, .y = {0.0, 1.0}};
  plot::Panel cells{.marks = {map}, .colour = plot::ColourAxis{}};
  plot::Panel curve{
      .marks = {
          plot::Line{"a", {}, {0, 1, 2}, {5, 5, 5}, {}, {}, /*markers=*/false},
          plot::Line{
              "b", {plot::Role::series, 1}, {0, 1, 2}, {1, 1, 1}, {}, {}, /*markers=*/false}}};
  plot::Figure figure{.panels = {curve, cells}, .columns = 2};

  Offscreen screen({1000, 500});
  FigureView view;
  const plot::Ground ground = GENERATE(plot::Ground::light, plot::Ground::dark);
  FigureStyle style{.ground = ground};
  screen.set_ground(plot::make_theme(plot::Venue::icml, ground).ground);
  for (int i = 0; i < 3; ++i) {
    screen.frame([&] {
      ImGui::SetNextWindowPos({0.0F, 0.0F});
      ImGui::SetNextWindowSize({1000.0F, 500.0F});
      ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {0.0F, 0.0F});
      ImGui::PushStyleVar(ImGuiStyleVar_WindowBorderSize, 0.0F);
      ImGui::Begin("figure", nullptr,
                   ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoBackground);
      view.show(screen.fonts(), screen.texture_store(), figure, {1000.0F, 500.0F}, style);
      ImGui::End();
      ImGui::PopStyleVar(2);
    });
  }
  const plot::Image image = screen.image();
  REQUIRE(image.width == 1000);
  REQUIRE(image.height == 500);
  const plot::Theme theme = plot::make_theme(plot::Venue::icml, ground);
  const auto of = [](plot::Colour c) { return Pixel{c.r, c.g, c.b}; };
  const auto near = [&](std::size_t panel, double x, double y, plot::Colour wanted) {
    const ImVec2 at = *view.place(panel, x, y);
    return pixel_at(image, at.x, at.y) == of(wanted);
  };
  CHECK(pixel_at(image, 1, 1) == of(theme.ground));
  CHECK(pixel_at(image, 998, 498) == of(theme.ground));
  CHECK(near(0, 0.5, 5.0, theme.style_of({plot::Role::series, 0}).colour));
  CHECK(near(0, 1.5, 1.0, theme.style_of({plot::Role::series, 1}).colour));
  CHECK(near(1, 0.5, 0.5, plot::colour_at(plot::ColourMap::sequential, 0.0)));
  CHECK(near(1, 1.5, 0.5, plot::colour_at(plot::ColourMap::sequential, 1.0)));
  CHECK(screen.png().substr(1, 3) == "PNG");
}

TEST_CASE("textures show their pixels and are freed when dropped", "[platform][offscreen]") {
  Offscreen screen({20, 20});
  Texture texture;
  const auto set = [&](int width, int height, std::vector<std::uint8_t> rgba) {
    texture.set(screen.texture_store(), width, height, std::as_bytes(std::span(rgba)));
  };
  set(1, 1, {9, 8, 7, 255});
  const auto draw = [&] {
    if (texture) ImGui::GetBackgroundDrawList()->AddImage(texture.id(), {0, 0}, {20, 20});
  };
  screen.frame(draw);
  CHECK(pixel_at(screen.image(), 10, 10) == Pixel{9, 8, 7});
  set(1, 1, {1, 2, 3, 255});
  screen.frame(draw);
  CHECK(pixel_at(screen.image(), 10, 10) == Pixel{1, 2, 3});
  CHECK_THROWS_AS(set(2, 1, {1, 2, 3, 255}), ShapeError);
  CHECK_THROWS_AS(set(1 << 24, 1, {}), ConfigError);
  texture = {};
  screen.frame(draw);
  CHECK(screen.texture_store().count() == 0);
}

TEST_CASE("a picture too large is refused with a sentence", "[platform][offscreen]") {
  CHECK_THROWS_AS(Offscreen({1e6F, 10.0F}), ConfigError);
  CHECK_THROWS_AS(Offscreen({0.0F, 10.0F}), ConfigError);
}

}  // namespace
}  // namespace kvscope::gui::offscreen_test
