// The layer of selected keys: at its place when zoomed in, folded into shares when zoomed out.
#include "gui/model/map/selected_layer.hpp"

#include <catch2/catch_test_macros.hpp>

namespace kvscope::gui::test::selected_layer_test {

constexpr plot::Colour kRed{255, 0, 0, 1.0};

KeptRow kept(Index pos, std::vector<KeyPos> keys) {
  return {pos, {0, pos + 1}, std::move(keys), 0.0};
}

int alpha_at(const SelectedLayer& layer, Index x, Index y) {
  return static_cast<int>(layer.pixels[y * layer.width + x] >> 24);
}

TEST_CASE("a pair covers its own pixels when zoomed in", "[map]") {
  MapView view;
  view.set_size(80, 80);
  view.set_map(8);  // ten pixels per token
  const std::vector<KeptRow> rows = {kept(5, {1, 4})};
  const SelectedLayer layer = fold_selected(rows, view, kRed);
  REQUIRE(layer.width == 80);
  REQUIRE(layer.height == 80);
  for (Index y = 0; y < 80; ++y) {
    for (Index x = 0; x < 80; ++x) {
      const bool chosen = y / 10 == 5 && (x / 10 == 1 || x / 10 == 4);
      REQUIRE(alpha_at(layer, x, y) == (chosen ? 255 : 0));
    }
  }
}

TEST_CASE("below a pixel the share of chosen pairs shows, and one pair is not lost", "[map]") {
  MapView view;
  view.set_size(16, 16);
  view.set_map(256);  // 16 tokens per pixel
  std::vector<KeptRow> rows;
  std::vector<KeyPos> all(16);
  for (int i = 0; i < 16; ++i) all[i] = 32 + i;  // pixel column 2
  for (Index pos = 160; pos < 176; ++pos) {      // pixel row 10
    rows.push_back(kept(pos, all));
    rows.back().keys.push_back(100);  // a sixteenth of column 6
  }
  rows.push_back(kept(200, {3}));  // the only measured query of its pixel row
  const SelectedLayer layer = fold_selected(rows, view, kRed);
  CHECK(alpha_at(layer, 2, 10) == 255);
  CHECK(alpha_at(layer, 6, 10) > 60);
  CHECK(alpha_at(layer, 6, 10) < 140);
  CHECK(alpha_at(layer, 0, 12) > 60);
  CHECK(alpha_at(layer, 3, 10) == 0);
  CHECK(alpha_at(layer, 2, 9) == 0);
  view.fit({{0, 0}, {64, 64}});
  const SelectedLayer away = fold_selected(rows, view, kRed);
  for (std::uint32_t pixel : away.pixels) REQUIRE(pixel == 0U);
}

TEST_CASE("what was not measured is hatched up to the last key that its queries see", "[map]") {
  constexpr Hatching kHatching{{0, 255, 0, 1.0}, {0, 0, 255, 1.0}};
  MapView view;
  view.set_size(80, 80);
  view.set_map(8);  // ten pixels per token
  const std::vector<KeptRow> rows = {kept(5, {1, 4})};
  const SelectedLayer layer = fold_selected(rows, view, kRed, kHatching);
  bool has_line = false;
  for (Index y = 0; y < 80; ++y) {
    for (Index x = 0; x < 80; ++x) {
      INFO(x << ", " << y);
      const bool is_kept = y / 10 == 5 && (x / 10 == 1 || x / 10 == 4);
      const bool is_unknown = y / 10 != 5 && x / 10 <= y / 10;
      REQUIRE(alpha_at(layer, x, y) == (is_kept || is_unknown ? 255 : 0));
      const std::uint32_t pixel = layer.pixels[y * 80 + x];
      if (is_unknown) REQUIRE((pixel & 0xFFU) == 0U);  // not as what is kept
      has_line = has_line || (pixel & 0xFF0000U) != 0U;
    }
  }
  CHECK(has_line);
}

}  // namespace kvscope::gui::test::selected_layer_test
