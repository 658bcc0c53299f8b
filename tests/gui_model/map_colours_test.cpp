// Scales and colours: every scale rises, masked cells stand apart, sinks do not count.
#include "gui/model/map/map_colours.hpp"

#include <bit>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

namespace kvscope::gui::test::map_colours_test {
namespace {

using Catch::Approx;
constexpr float kNothing = std::numeric_limits<float>::quiet_NaN();

/// One row of weights 10^-6 ... 10^0 and a masked cell, one pending and one unrecorded row.
MapTile small_tile() {
  MapTile tile;
  tile.n_rows = 3;
  tile.n_cols = 8;
  tile.max.assign(24, 0.5F);
  for (int i = 0; i < 7; ++i) tile.max[static_cast<std::size_t>(i)] = std::pow(10.0F, i - 6);
  tile.max[7] = kNothing;
  tile.rows = {RowState::exact, RowState::pending, RowState::unrecorded};
  return tile;
}

TEST_CASE("counts leave out masked cells, rows without weights, and sinks", "[map]") {
  WeightCounts counts;
  counts.add(small_tile(), MapPooling::max, 0);
  CHECK(counts.n() == 7);
  CHECK(counts.largest() == 1.0);
  CHECK(*counts.quantile(1.0) == Approx(1.0).epsilon(0.005));
  CHECK(*counts.quantile(0.5) == Approx(1e-3).epsilon(0.005));
  CHECK(counts.rank(1e-3) == Approx(3.5 / 7.0));
  WeightCounts without;
  without.add(small_tile(), MapPooling::max, 2);
  CHECK(without.n() == 5);
  CHECK(*without.quantile(0.0) == Approx(1e-4).epsilon(0.005));

  MapTile coarse = small_tile();  // 3 sinks lie in the first cell of level 2
  coarse.id.level = 2;
  WeightCounts pooled;
  pooled.add(coarse, MapPooling::max, 3);
  CHECK(pooled.n() == 6);
  coarse.id.col = 1;
  WeightCounts elsewhere;
  elsewhere.add(coarse, MapPooling::max, 3);
  CHECK(elsewhere.n() == 7);

  CHECK_FALSE(WeightCounts().quantile(0.5));

  WeightCounts part;  // keys 2 to 4 alone
  part.add(small_tile(), MapPooling::max, 0, {0, 3}, {2, 5});
  CHECK(part.n() == 3);
  CHECK(part.largest() == Catch::Approx(1e-2));
  part.add(small_tile(), MapPooling::max, 0, {1, 3}, {2, 5});
  part.add(small_tile(), MapPooling::max, 0, {0, 3}, {300, 400});
  CHECK(part.n() == 3);
}

TEST_CASE("automatic ranges are round and hold what was counted", "[map]") {
  WeightCounts counts;
  counts.add(small_tile(), MapPooling::max, 0);
  CHECK(automatic_range(MapScaleKind::linear, counts) == plot::Range{0.0, 1.0});
  const plot::Range log = automatic_range(MapScaleKind::log, counts);
  CHECK(log.low == Approx(1e-6));
  CHECK(log.high == Approx(1.0));
  MapTile tile = small_tile();
  for (float& value : tile.max) value = std::isnan(value) ? value : 0.033F;
  WeightCounts same;
  same.add(tile, MapPooling::max, 0);
  CHECK(automatic_range(MapScaleKind::linear, same).high == Approx(0.05));
  const plot::Range narrow = automatic_range(MapScaleKind::log, same);
  CHECK(narrow.low == Approx(0.01));
  CHECK(narrow.high == Approx(0.1));
  const plot::Range nothing = automatic_range(MapScaleKind::log, {});
  CHECK(nothing.low > 0.0);
  CHECK(nothing.high > nothing.low);
}

TEST_CASE("colours rise with weights on every scale, and ticks say what is there", "[map]") {
  WeightCounts counts;
  counts.add(small_tile(), MapPooling::max, 0);
  const MapGround ground{0xFF112233U, 0xFF445566U};
  for (MapScaleKind kind : {MapScaleKind::linear, MapScaleKind::log, MapScaleKind::percentile}) {
    const MapColours colours(kind, automatic_range(kind, counts), plot::ColourMap::sequential,
                             ground, counts);
    double last = -1.0;
    for (int i = 0; i < 7; ++i) {
      const double u = colours.unit(std::pow(10.0, i - 6));
      CHECK(u > last);
      CHECK(u <= 1.0);
      last = u;
      // a colour is that of its place on the bar, up to the table's steps
      const double weight = std::pow(10.0, i - 6);
      const double back = colours.unit(colours.weight_at(u));
      CHECK(back == Approx(u).margin(0.01));
      CHECK(colours.colour(static_cast<float>(weight)) ==
            colours.colour(static_cast<float>(weight)));
    }
    CHECK(colours.colour(kNothing) == ground.masked);
    CHECK(colours.colour(0.0F) == rgba(plot::colour_at(plot::ColourMap::sequential, 0.0)));
    CHECK(colours.colour(0.0F) != ground.masked);
    std::vector<std::uint32_t> pixels(24);
    colours.colour_tile(small_tile(), MapPooling::max, pixels);
    CHECK(pixels[7] == ground.masked);
    CHECK(pixels[8] == 0U);  // pending: what lies below is seen
    CHECK(pixels[16] == ground.unrecorded);
    CHECK(pixels[6] == colours.colour(1.0F));
    CHECK(pixels[0] != pixels[6]);
  }
}

TEST_CASE("a fixed range is kept, beyond it colours end", "[map]") {
  const MapColours colours(MapScaleKind::log, {1e-4, 1e-2}, plot::ColourMap::sequential, {}, {});
  CHECK(colours.unit(1e-3) == Approx(0.5));
  CHECK(colours.unit(1e-9) == 0.0);
  CHECK(colours.unit(0.0) == 0.0);
  CHECK(colours.unit(1.0) == 1.0);
  CHECK(colours.weight_at(0.5) == Approx(1e-3));
  const MapColours broken(MapScaleKind::log, {0.0, 0.0}, plot::ColourMap::sequential, {}, {});
  CHECK(broken.range().low < broken.range().high);
}

TEST_CASE("bytes are red, green, blue, opacity in memory", "[map]") {
  const auto bytes = std::bit_cast<std::array<std::uint8_t, 4>>(rgba({1, 2, 3, 1.0}));
  CHECK(bytes == std::array<std::uint8_t, 4>{1, 2, 3, 255});
}

}  // namespace
}  // namespace kvscope::gui::test::map_colours_test
