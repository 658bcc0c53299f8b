// The viewport: what is under the cursor stays there, limits hold, levels fit the screen.
#include "gui/model/map/map_view.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

namespace kvscope::gui::test::map_view_test {

using Catch::Approx;

MapView view_of(Index n_tokens, double width, double height) {
  MapView view;
  view.set_size(width, height);
  view.set_map(n_tokens);
  return view;
}

TEST_CASE("a new map is fitted, at its axes", "[map]") {
  const MapView view = view_of(1000, 800, 500);
  CHECK(view.is_fitted());
  CHECK(view.tokens_per_pixel() == Approx(2.0));
  CHECK(view.y_of(0) == Approx(0.0));
  CHECK(view.y_of(1000) == Approx(500.0));
  CHECK(view.x_of(0) == Approx(0.0));
  CHECK(view.x_of(1000) == Approx(500.0));
  CHECK_FALSE(view.hit(-1.0, 10.0));
  CHECK(view.hit(0.5, 0.5) == MapPair{1, 1});
  CHECK(view.hit(499.9, 499.9) == MapPair{999, 999});
  CHECK_FALSE(view.hit(500.5, 10.0));
  CHECK_FALSE(view.hit(200.0, 500.0));
}

TEST_CASE("a view that was noted is taken again", "[map]") {
  MapView view = view_of(1000, 100, 100);
  view.look_at({300.0, 200.0}, 0.5);
  CHECK(view.at(50, 50).query == Approx(300.0));
  CHECK(view.at(50, 50).key == Approx(200.0));
  CHECK_FALSE(view.is_fitted());
  view.look_at({300.0, 200.0}, 1e9);
  CHECK(view.is_fitted());
}

TEST_CASE("zooming keeps the point under the cursor", "[map]") {
  MapView view = view_of(32768, 900, 900);
  view.zoom(8.0, 400, 600);
  for (int i = 0; i < 40; ++i) {
    const double x = 100.0 + 17.0 * (i % 31);
    const double y = 80.0 + 23.0 * (i % 29);
    const MapPoint before = view.at(x, y);
    view.zoom(i % 3 == 2 ? 0.8 : 1.25, x, y);
    const MapPoint after = view.at(x, y);
    CHECK(after.key == Approx(before.key).epsilon(1e-9));
    CHECK(after.query == Approx(before.query).epsilon(1e-9));
  }
}

TEST_CASE("the view never leaves the map nor its limits of scale", "[map]") {
  MapView view = view_of(4160, 1000, 700);
  view.zoom(1e-6, 10, 10);
  CHECK(view.tokens_per_pixel() == Approx(4160.0 / 700.0));
  view.zoom(1e9, 10, 10);
  CHECK(view.tokens_per_pixel() == Approx(1.0 / 64.0));
  view.pan(1e7, 1e7);
  CHECK(view.origin().key == Approx(0.0));
  CHECK(view.origin().query == Approx(0.0));
  view.pan(-1e7, -1e7);
  CHECK(view.shown().to.key == Approx(4160.0));
  CHECK(view.shown().to.query == Approx(4160.0));
  CHECK(view.hit(999.0, 699.0) == MapPair{4159, 4159});
  CHECK(view.queries() == TokenRange{4149, 4160});
}

TEST_CASE("panning moves the picture by pixels, revealing by as little as needed", "[map]") {
  MapView view = view_of(10000, 500, 500);
  view.zoom(10.0, 250, 250);  // two tokens per pixel
  const MapPoint before = view.at(100, 100);
  view.pan(30, -20);
  CHECK(view.at(130, 80).key == Approx(before.key));
  CHECK(view.at(130, 80).query == Approx(before.query));
  const MapPoint origin = view.origin();
  view.reveal({static_cast<Index>(origin.query) + 10, static_cast<Index>(origin.key) + 10});
  CHECK(view.origin().key == origin.key);
  view.reveal({9990, 20});
  CHECK(view.queries().end > 9990);
  CHECK(view.keys().begin <= 20);
}

TEST_CASE("fits: a rectangle, all keys, some queries", "[map]") {
  MapView view = view_of(10000, 800, 400);
  view.fit({{2000, 3000}, {2400, 3400}});
  CHECK(view.tokens_per_pixel() == Approx(1.0));
  CHECK(view.y_of(2000) == Approx(0.0));
  CHECK(view.x_of(3000) == Approx(200.0));
  view.fit_width();
  CHECK(view.tokens_per_pixel() == Approx(12.5));
  CHECK(view.keys() == TokenRange{0, 10000});
  view.fit_queries({9000, 9800});
  CHECK(view.tokens_per_pixel() == Approx(2.0));
  CHECK(view.queries() == TokenRange{9000, 9800});
}

TEST_CASE("another size keeps the middle, a fitted map stays fitted", "[map]") {
  MapView view = view_of(1000, 500, 500);
  view.set_size(250, 400);
  CHECK(view.tokens_per_pixel() == Approx(4.0));
  view.zoom(4.0, 125, 200);
  const MapPoint middle = view.at(125, 200);
  view.set_size(300, 300);
  CHECK(view.at(150, 150).key == Approx(middle.key));
  CHECK(view.at(150, 150).query == Approx(middle.query));
}

TEST_CASE("no cell is smaller than a pixel, none larger than two but at level 0", "[map]") {
  MapView view = view_of(32768, 1000, 1000);
  for (int i = 0; i < 60; ++i) {
    const double cell = static_cast<double>(Index{1} << view.level()) / view.tokens_per_pixel();
    CHECK(cell >= 1.0 - 1e-6);
    if (view.level() > 0) CHECK(cell < 2.0);
    view.zoom(1.2, 500, 500);
  }
  CHECK(view.level() == 0);
}

TEST_CASE("the tiles in sight cover the view and nothing else", "[map]") {
  MapView view = view_of(32768, 1000, 600);
  const MapGrid grid{32768, {0, 32768}, std::nullopt};
  view.fit({{20000, 9000}, {20600, 10000}});
  REQUIRE(view.level() == 0);
  const std::vector<TileId> tiles = view.tiles(grid, 0);
  // queries 20000..20600 lie in rows 78 to 80, keys 9000..10000 in columns 35 to 39
  CHECK(tiles.size() == 15);
  for (TileId id : tiles) {
    CHECK(id.row >= 78);
    CHECK(id.row <= 80);
    CHECK(id.col >= 35);
    CHECK(id.col <= 39);
  }
  CHECK(tiles.front() == TileId{0, 79, 37});
  view.fit({{9000, 20000}, {9600, 21000}});
  CHECK(view.tiles(grid, 0).empty());  // nothing is seen above the diagonal
}

}  // namespace kvscope::gui::test::map_view_test
