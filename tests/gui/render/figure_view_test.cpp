// A figure under the mouse: what is hit, how it is zoomed, and that nothing is drawn twice.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <limits>

#include "core/base/rng.hpp"
#include "gui/render/figure_view.hpp"
#include "tests/gui/platform/null_backend.hpp"

namespace kvscope::gui::figure_view_test {
namespace {

plot::Figure figure_of(std::vector<plot::Mark> marks) {
  plot::Panel panel{.x = {.label = "x"}, .y = {.label = "y"}, .marks = std::move(marks)};
  return plot::Figure{.name = "test", .panels = {panel}};
}

plot::Scatter cloud(int n) {
  const CounterRng rng{3};
  plot::Scatter points;
  for (int i = 0; i < n; ++i) {
    const auto at = static_cast<std::uint64_t>(3 * i);
    points.x.push_back(rng.normal(at));
    points.y.push_back(rng.normal(at + 1));
    points.value.push_back(rng.uniform(at + 2));
  }
  return points;
}

/// A view that fills a window.
struct Stage {
  explicit Stage(plot::Figure f, ImVec2 size = {1000, 700}) : backend(size), figure(std::move(f)) {
    for (int i = 0; i < 3; ++i) frame();  // letters in the sizes that figures need
  }
  void frame() {
    backend.frame([&] { draw(); });
  }
  void draw() {
    ImGui::SetNextWindowPos({0.0F, 0.0F});
    ImGui::SetNextWindowSize(backend.size());
    ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {0.0F, 0.0F});
    ImGui::Begin("stage", nullptr, ImGuiWindowFlags_NoDecoration);
    view.show(backend.fonts(), backend.texture_store(), figure, backend.size(), style);
    ImGui::End();
    ImGui::PopStyleVar();
  }
  void move_to(ImVec2 at) {
    backend.move_mouse(at);
    frame();
  }
  ImVec2 place(double x, double y, std::size_t panel = 0) { return *view.place(panel, x, y); }

  NullBackend backend;
  plot::Figure figure;
  FigureStyle style;
  FigureView view;
};

TEST_CASE("the hit is the data point nearest to the cursor", "[render][figure_view]") {
  const plot::Scatter points = cloud(20000);
  Stage stage(figure_of({points}));
  for (std::size_t i : {std::size_t{0}, std::size_t{77}, std::size_t{19999}}) {
    const ImVec2 there = stage.place(points.x[i], points.y[i]);
    const ImVec2 at{std::floor(there.x), std::floor(there.y)};  // where ImGui sees the mouse
    stage.move_to(at);
    REQUIRE(stage.view.hit());
    const FigureHit& hit = *stage.view.hit();
    CHECK(hit.panel == 0);
    CHECK(hit.mark == 0U);
    REQUIRE(hit.point);
    // the naive search over all points
    double best = 1e300;
    for (std::size_t j = 0; j < points.x.size(); ++j) {
      const ImVec2 p = stage.place(points.x[j], points.y[j]);
      const double d = std::hypot(p.x - at.x, p.y - at.y);
      best = std::min(best, d);
    }
    const ImVec2 found = stage.place(hit.point_x, hit.point_y);
    CHECK(std::hypot(found.x - at.x, found.y - at.y) == Catch::Approx(best).margin(0.01));
    CHECK(hit.value == points.value[*hit.point]);
    CHECK(hit.point_x == points.x[*hit.point]);
    CHECK_FALSE(hit.clicked);
  }
  // nothing within six pixels of a corner of this cloud
  const auto frame = *stage.view.frame(0);
  stage.move_to({frame.low.x + 2.0F, frame.low.y + 2.0F});
  REQUIRE(stage.view.hit());
  CHECK_FALSE(stage.view.hit()->point);
  stage.move_to({3.0F, 3.0F});  // outside the panel
  CHECK_FALSE(stage.view.hit());
}

TEST_CASE("points and lines are hit; the one on top wins", "[render][figure_view]") {
  plot::Line below{"a", {}, {1, 2, 3}, {1, 4, 2}};
  plot::Line above{"b", {}, {1, 2, 3}, {3, 4, 1}};
  Stage lines(figure_of({below, above}));
  lines.move_to(lines.place(2.0, 4.0));
  CHECK(lines.view.hit()->mark == 1U);
  CHECK(lines.view.hit()->point == 1U);
  lines.move_to(lines.place(3.0, 2.0));
  CHECK(lines.view.hit()->mark == 0U);
  CHECK(lines.view.hit()->point == 2U);
}

TEST_CASE("the cell of a heat map is the one under the cursor", "[render][figure_view]") {
  plot::HeatMap map{.n_rows = 3, .n_cols = 4};
  for (int i = 0; i < 12; ++i) map.values.push_back(static_cast<float>(i));
  map.values[5] = std::numeric_limits<float>::quiet_NaN();
  map.x = {0.0, 8.0};
  map.y = {0.0, 3.0};
  plot::Figure figure = figure_of({map});
  figure.panels[0].colour = plot::ColourAxis{};
  const bool reversed = GENERATE_COPY(false, true);
  figure.panels[0].y.reversed = reversed;
  Stage stage(figure);
  stage.move_to(stage.place(7.0, 2.5));
  CHECK(stage.view.hit()->row == 2);
  CHECK(stage.view.hit()->col == 3);
  CHECK(stage.view.hit()->value == 11.0);
  stage.move_to(stage.place(3.0, 1.5));
  CHECK(stage.view.hit()->row == 1);
  CHECK(std::isnan(*stage.view.hit()->value));
}

TEST_CASE("the wheel zooms about the cursor, a double click resets", "[render][figure_view]") {
  const plot::ScaleKind kind = GENERATE(plot::ScaleKind::linear, plot::ScaleKind::log10);
  plot::Line line{"a", {}, {1, 10, 100, 1000}, {1, 2, 4, 3}};
  plot::Figure figure = figure_of({line});
  figure.panels[0].x.scale = kind;
  Stage stage(figure);
  const ImVec2 at = stage.place(100.0, 4.0);
  stage.move_to(at);
  for (int i = 0; i < 7; ++i) {
    stage.backend.scroll(1.0F);
    stage.frame();
  }
  CHECK(stage.view.is_zoomed());
  const ImVec2 after = stage.place(100.0, 4.0);
  const auto frame = *stage.view.frame(0);
  // margins may change with the tick labels, so the frame may move a little
  CHECK(std::abs(after.x - at.x) < 0.06F * (frame.high.x - frame.low.x));
  CHECK(std::abs(after.y - at.y) < 0.06F * (frame.high.y - frame.low.y));
  const plot::Figure seen = *stage.view.current();
  REQUIRE(seen.panels[0].x.range);
  CHECK(seen.panels[0].x.range->low < 100.0);
  CHECK(seen.panels[0].x.range->high > 100.0);
  CHECK(seen.panels[0].y.range->high - seen.panels[0].y.range->low ==
        Catch::Approx(3.24 / std::pow(1.2, 7)).epsilon(0.02));
  CHECK(std::get<plot::Line>(seen.panels[0].marks[0]).x.size() == 4);

  for (int i = 0; i < 2; ++i) {
    stage.backend.press_button();
    stage.frame();
    stage.backend.release_button();
    stage.frame();
  }
  CHECK_FALSE(stage.view.is_zoomed());
  CHECK_FALSE(stage.view.current()->panels[0].x.range);
}

TEST_CASE("dragging pans, and is no click", "[render][figure_view]") {
  Stage stage(figure_of({plot::Line{"a", {}, {0, 5, 10}, {0, 5, 10}}}));
  const ImVec2 at = stage.place(5.0, 5.0);
  stage.backend.click(at, [&] { stage.draw(); });
  REQUIRE(stage.view.hit());
  CHECK(stage.view.hit()->clicked);
  CHECK(stage.view.hit()->point == 1U);
  stage.frame();
  CHECK_FALSE(stage.view.hit()->clicked);

  for (int i = 0; i < 30; ++i) stage.frame();  // long enough for no double click
  stage.backend.scroll(6.0F);
  stage.frame();
  const ImVec2 before = stage.place(5.0, 5.0);
  stage.backend.press_button();
  stage.frame();
  for (int i = 1; i <= 5; ++i) stage.move_to({at.x + 8.0F * static_cast<float>(i), at.y});
  const ImVec2 dragged = stage.place(5.0, 5.0);
  CHECK(dragged.x - before.x == Catch::Approx(40.0).margin(9.0));
  CHECK(dragged.y == Catch::Approx(before.y).margin(1.0));
  stage.backend.release_button();
  stage.frame();
  CHECK_FALSE((stage.view.hit() && stage.view.hit()->clicked));
}

TEST_CASE("a figure is drawn once, however many frames show it", "[render][figure_view]") {
  Stage stage(figure_of({cloud(200000)}));
  const auto drawn = stage.view.n_recordings();
  const std::size_t textures = stage.backend.texture_store().count();
  for (int i = 0; i < 20; ++i) stage.move_to({400.0F + static_cast<float>(i), 300.0F});
  CHECK(stage.view.n_recordings() == drawn);
  CHECK(textures >= 1);
  CHECK(stage.backend.n_vertices() < 20000);  // a picture, not 200k markers
  stage.view.renew();
  stage.frame();
  CHECK(stage.view.n_recordings() == drawn + 1);
  stage.style.ground = plot::Ground::dark;
  stage.frame();
  CHECK(stage.view.n_recordings() == drawn + 2);
  stage.backend.resize({800, 600});
  stage.frame();
  CHECK(stage.view.n_recordings() == drawn + 3);
  CHECK(stage.backend.texture_store().count() == textures);
}

TEST_CASE("what cannot be drawn becomes a sentence", "[render][figure_view]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Stage nothing(figure_of({plot::Line{"a", {}, {1, 2}, {nan, nan}}}));
  CHECK_FALSE(nothing.view.problem().empty());
  CHECK_FALSE(nothing.view.hit());
  CHECK(nothing.backend.n_vertices() > 0);
  nothing.figure = figure_of({plot::Line{"a", {}, {1, 2}, {1, 2}}});
  nothing.view.renew();
  nothing.frame();
  CHECK(nothing.view.problem().empty());

  Stage small(figure_of({plot::Line{"a", {}, {1, 2}, {1, 2}}}), {60, 30});
  CHECK(small.view.problem().find("too little room") != std::string::npos);
  small.backend.resize({600, 400});
  small.frame();
  CHECK(small.view.problem().empty());
}

/// It is drawn roughly while the wheel turns, once more after it, and then no more.
void check_rough_in_motion(Stage& stage) {
  CHECK_FALSE(stage.view.is_rough());
  const auto whole = stage.view.n_recordings();
  stage.move_to({500, 350});
  stage.backend.scroll(0.1F);
  stage.frame();
  stage.frame();
  CHECK(stage.view.is_rough());
  for (int i = 0; i < 30 && stage.view.is_rough(); ++i) stage.frame();
  CHECK_FALSE(stage.view.is_rough());
  CHECK(stage.view.n_recordings() == whole + 2);
  stage.frame();
  CHECK(stage.view.n_recordings() == whole + 2);
}

TEST_CASE("very many points: some are left out while the wheel turns, none after it",
          "[render][figure_view]") {
  Stage stage(figure_of({cloud(2 * static_cast<int>(FigureView::kMostInMotion))}));
  check_rough_in_motion(stage);
}

TEST_CASE("a large map has coarse pixels while the wheel turns, all of them after it",
          "[render][figure_view]") {
  constexpr Index kSide = 1200;
  plot::HeatMap map;
  map.n_rows = map.n_cols = kSide;
  map.x = map.y = {0.0, static_cast<double>(kSide)};
  for (Index i = 0; i < kSide * kSide; ++i) map.values.push_back(static_cast<float>(i % 977));
  Stage stage(figure_of({map}));
  check_rough_in_motion(stage);
}

}  // namespace
}  // namespace kvscope::gui::figure_view_test
