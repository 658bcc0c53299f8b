// Figures cut to what is visible: maps pooled to pixels, clouds without what lies outside.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "analysis/plot/draw.hpp"
#include "gui/render/visible_figure.hpp"

namespace kvscope::gui::render_visible_figure_test {
namespace {

plot::HeatMap numbered(Index rows, Index cols) {
  plot::HeatMap map{.n_rows = rows,
                    .n_cols = cols,
                    .x = {0.0, static_cast<double>(cols)},
                    .y = {100.0, 100.0 + static_cast<double>(rows)}};
  for (Index i = 0; i < rows * cols; ++i) map.values.push_back(static_cast<float>(i));
  return map;
}

TEST_CASE("a map keeps the cells that the ranges touch", "[render][visible]") {
  const plot::HeatMap map = numbered(10, 20);
  const plot::HeatMap part = visible_map(map, {3.5, 7.0}, {102.0, 104.5}, 100, 100);
  CHECK(part.n_cols == 4);
  CHECK(part.n_rows == 3);
  CHECK(part.x == plot::Range{3.0, 7.0});
  CHECK(part.y == plot::Range{102.0, 105.0});
  CHECK(part.values.front() == 2 * 20 + 3);
  CHECK(part.values.back() == 4 * 20 + 6);
  // ranges beyond the map, and beside it
  CHECK(visible_map(map, {-5.0, 50.0}, {0.0, 500.0}, 100, 100).values == map.values);
  CHECK(visible_map(map, {90.0, 95.0}, {102.0, 103.0}, 100, 100).n_cols == 1);
}

TEST_CASE("cells that share a pixel become their mean", "[render][visible]") {
  plot::HeatMap map = numbered(7, 9);
  map.values[0] = std::numeric_limits<float>::quiet_NaN();
  const plot::HeatMap pooled = visible_map(map, map.x, map.y, 4, 3);
  REQUIRE(pooled.n_cols == 4);
  REQUIRE(pooled.n_rows == 3);
  double weighted = 0.0;
  for (Index row = 0; row < 3; ++row) {
    for (Index col = 0; col < 4; ++col) {
      double sum = 0.0;
      int n = 0;
      for (Index r = row * 7 / 3; r < (row + 1) * 7 / 3; ++r) {
        for (Index c = col * 9 / 4; c < (col + 1) * 9 / 4; ++c) {
          const float v = map.values[r * 9 + c];
          if (std::isnan(v)) continue;
          sum += static_cast<double>(v);
          ++n;
        }
      }
      CHECK(pooled.values[row * 4 + col] == Catch::Approx(sum / n));
      weighted += sum;
    }
  }
  CHECK(weighted == Catch::Approx(62.0 * 63.0 / 2.0));  // every cell counted once
}

TEST_CASE("only points in sight are drawn, and ranges do not change", "[render][visible]") {
  plot::Scatter points;
  for (int i = 0; i < 10000; ++i) {
    points.x.push_back(i);
    points.y.push_back(i % 100);
    points.value.push_back(i);
  }
  plot::Figure figure{.panels = {plot::Panel{.marks = {points}, .colour = plot::ColourAxis{}}}};
  const FigureFacts facts(figure);
  auto visible = facts.ranges;
  visible[0].x = {1000.0, 2000.0};
  const plot::Figure shown = figure_for_layout(figure, facts, visible);
  const auto& kept = std::get<plot::Scatter>(shown.panels[0].marks[0]);
  CHECK(kept.x.size() >= 1001);
  CHECK(kept.x.size() < 1100);
  CHECK(kept.value.size() == kept.x.size());
  CHECK(plot::ranges_of(shown)[0].x == visible[0].x);
  CHECK(plot::ranges_of(shown)[0].colour == facts.ranges[0].colour);
}

TEST_CASE("in motion a large cloud loses every so many points, always the same ones",
          "[render][visible]") {
  plot::Scatter points;
  for (int i = 0; i < 20000; ++i) {
    points.x.push_back(i);
    points.y.push_back(i % 100);
  }
  plot::Figure figure{.panels = {plot::Panel{.marks = {points}}}};
  const FigureFacts facts(figure);
  CHECK(thinning_to(figure, facts.ranges, 20000).stride == 1);
  CHECK(thinning_to(figure, facts.ranges, 19999).stride == 2);
  const Thinning thin = thinning_to(figure, facts.ranges, 6000);
  CHECK(thin.stride == 4);  // a power of two: what is left here is left at 2 and 1, too
  const plot::Figure shown = figure_for_layout(figure, facts, facts.ranges, thin);
  const auto& left = std::get<plot::Scatter>(shown.panels[0].marks[0]);
  REQUIRE(left.x.size() == 5000);
  CHECK(left.x[1] == 4.0);
  // What lies out of sight does not count: a small part is whole.
  auto visible = facts.ranges;
  visible[0].x = {1000.0, 2000.0};
  CHECK(thinning_to(figure, visible, 6000).stride == 1);
}

TEST_CASE("large pictures get fewer pixels than the screen has, small ones all of them",
          "[render][visible]") {
  plot::HeatMap map;
  map.n_rows = map.n_cols = 1000;
  map.values.resize(1'000'000);
  plot::Figure figure{.panels = {plot::Panel{.marks = {map}}}};
  plot::Layout layout;
  layout.panels.resize(1);
  layout.panels[0].frame = {0.0, 0.0, 450.0, 450.0};
  const double pixels = 900.0 * 900.0;  // two per point
  CHECK(density_for(figure, layout, 2.0, pixels) == 1.0);
  CHECK(density_for(figure, layout, 2.0, 0.95 * pixels) == 1.0);
  CHECK(density_for(figure, layout, 2.0, 0.5 * pixels) == 0.5);
  CHECK(density_for(figure, layout, 2.0, 0.2 * pixels) == 1.0 / 3.0);
  figure.panels[0].marks.emplace_back(plot::Line{"", {}, {0, 1}, {0, 1}});
  CHECK(density_for(figure, layout, 2.0, pixels) == 1.0);
  // a map of few cells is no more work on a large screen
  map.n_rows = map.n_cols = 100;
  map.values.resize(10'000);
  figure.panels[0].marks = {map};
  CHECK(density_for(figure, layout, 2.0, 0.02 * pixels) == 1.0);
}

TEST_CASE("panels take the columns that fill the rectangle", "[render][visible]") {
  plot::Figure figure;
  figure.panels.assign(6, plot::Panel{.marks = {plot::Line{"", {}, {0, 1}, {0, 1}}}});
  figure.columns = 3;
  const plot::Theme theme = plot::make_theme(plot::Venue::icml, plot::Ground::light);
  CHECK(best_columns(figure, {800, 400}, theme) == 3);
  CHECK(best_columns(figure, {300, 900}, theme) == 1);
  CHECK(best_columns(figure, {2000, 220}, theme) == 6);
}

TEST_CASE("labels are repeated where shared axes no longer line up", "[render][visible]") {
  plot::Panel low{.marks = {plot::Line{"", {}, {0, 1}, {0, 1}}}};
  plot::Panel high = low;
  high.marks = {plot::Line{"", {}, {0, 1}, {0, 50}}};
  plot::Figure figure{.panels = {low, low, high, high}, .columns = 2, .share_y = true};
  const auto ranges = plot::ranges_of(figure);
  set_columns(figure, 4, ranges);
  CHECK(figure.columns == 4);
  CHECK_FALSE(figure.share_y);
}

}  // namespace
}  // namespace kvscope::gui::render_visible_figure_test
