// The attention map's panel on a backend without a GPU: what the mouse and keys do, what is
// exported, what is uploaded.
#include "gui/panels/attention_map_panel.hpp"

#include <GLFW/glfw3.h>

#include <nlohmann/json.hpp>

#include "tests/gui/app_rig.hpp"
#include "tests/support/test.hpp"

namespace kvscope::gui::test::attention_map_panel_test {

/// The panel alone, over a trace of 200 tokens.
struct MapRig : Rig {
  MapRig() {
    open_pair();
    app().show_panel_alone("attention-map");
    settle();
  }
  AttentionMapPanel& panel() {
    return dynamic_cast<AttentionMapPanel&>(app().panel("attention-map"));
  }
  /// Where a pair is drawn.
  ImVec2 place(Index query, Index key) {
    const ImVec2 low = panel().canvas().low();
    return {low.x + static_cast<float>(panel().view().x_of(static_cast<double>(key) + 0.5)),
            low.y + static_cast<float>(panel().view().y_of(static_cast<double>(query) + 0.5))};
  }
  /// The exact weight, from the file's own tensors.
  double weight(Index query, Index key) {
    const Selection& s = session().selection();
    const auto head = AttentionHead::load(session().document()->source(), s.layer, s.q_head, {});
    return head->weight(query, key).value_or(std::numeric_limits<double>::quiet_NaN());
  }
};

const plot::HeatMap& heat_map(const plot::Figure& figure) {
  return std::get<plot::HeatMap>(figure.panels.at(0).marks.at(0));
}

TEST_CASE("the wheel zooms about the cursor, a drag moves the map and selects nothing", "[map]") {
  MapRig rig;
  const Selection before = rig.session().selection();
  rig.hover(rig.place(100, 40));
  const auto scroll = [&](int n) {
    for (int i = 0; i < n; ++i) {
      rig.backend().scroll(1.0f);
      rig.frame(2);
    }
  };
  scroll(5);  // until the map is larger than the view: before, its axes stay in place
  const ImVec2 at = rig.place(100, 60);
  rig.hover(at);
  scroll(6);
  const MapView zoomed = rig.panel().view();
  CHECK(zoomed.tokens_per_pixel() < 0.1);
  const ImVec2 same = rig.place(100, 60);
  CHECK(same.x == Approx(at.x).margin(1.0 / zoomed.tokens_per_pixel()));
  CHECK(same.y == Approx(at.y).margin(1.0 / zoomed.tokens_per_pixel()));

  rig.backend().press_button();
  rig.frame(2);
  rig.hover({at.x + 60, at.y - 30});
  rig.hover({at.x + 100, at.y - 50});
  rig.backend().release_button();
  rig.frame(2);
  CHECK(rig.panel().view().x_of(40) == Approx(zoomed.x_of(40) + 100).margin(1.0));
  CHECK(rig.panel().view().y_of(100) == Approx(zoomed.y_of(100) - 50).margin(1.0));
  CHECK(rig.session().selection() == before);
}

TEST_CASE("keys over the map move, zoom, fit and step the selected pair", "[map]") {
  MapRig rig;
  const ImVec2 at = rig.place(100, 40);
  rig.hover(at);
  rig.tap(GLFW_KEY_EQUAL);
  rig.tap(GLFW_KEY_EQUAL);
  const double close = rig.panel().view().tokens_per_pixel();
  rig.tap(GLFW_KEY_MINUS);
  CHECK(rig.panel().view().tokens_per_pixel() == Approx(1.5 * close));
  for (int i = 0; i < 3; ++i) rig.tap(GLFW_KEY_EQUAL);
  const double key = rig.panel().view().origin().key;
  rig.tap(GLFW_KEY_RIGHT);
  CHECK(rig.panel().view().origin().key > key);
  rig.tap(GLFW_KEY_0);
  CHECK(rig.panel().view().is_fitted());
  rig.session().select("test", [](Selection& s) {
    s.query = 150;
    s.key = 30;
  });
  rig.frame(2);
  rig.tap(GLFW_KEY_DOWN, false, /*shift=*/true);
  rig.tap(GLFW_KEY_LEFT, false, /*shift=*/true);
  CHECK(rig.session().selection().query == 151);
  CHECK(rig.session().selection().key == 29);
  rig.tap(GLFW_KEY_G);
  CHECK(rig.panel().view().queries().begin > 60);
  CHECK(rig.panel().view().queries().end > 151);
  // what another panel selects comes into sight
  rig.session().select("test", [](Selection& s) {
    s.query = 20;
    s.key.reset();
  });
  rig.frame(2);
  CHECK(rig.panel().view().queries().begin <= 20);
}

TEST_CASE("what is exported holds the weights in sight, of the head that is shown", "[map]") {
  MapRig rig;
  rig.panel().set_options(
      {{"scale", "linear"},
       {"view", {{"query", 130.0}, {"key", 60.0}, {"tokens_per_pixel", 0.05}}}});
  rig.settle();
  for (Index head : {Index{0}, Index{5}}) {
    rig.session().select("test", [&](Selection& s) { s.q_head = head; });
    rig.settle();
    const auto figure = rig.panel().figure();
    REQUIRE(figure);
    plot::check_figure(*figure);
    const plot::HeatMap& map = heat_map(*figure);
    CHECK(map.y.low <= 130.0);
    CHECK(map.y.high >= 131.0);
    const auto row = static_cast<Index>(130.0 - map.y.low);
    const auto col = static_cast<Index>(60.0 - map.x.low);
    const float shown = map.values[row * map.n_cols + col];
    CHECK(static_cast<double>(shown) == Approx(rig.weight(130, 60)).epsilon(1e-5));
    CHECK(figure->caption.at(0).find("head " + std::to_string(head)) != std::string::npos);
    CHECK(rig.panel().csv().has_value());
  }
  rig.session().close_trace(0);
  rig.frame(2);
  CHECK_FALSE(rig.panel().figure());
  CHECK_FALSE(rig.panel().is_busy());
}

TEST_CASE("cancelled work rests, and the picture offers to go on", "[map]") {
  MapRig rig;
  rig.session().select("test", [](Selection& s) { s.layer = 2; });
  rig.frame();
  for (const Job& job : rig.app().jobs().active()) job.cancel();
  rig.settle();  // ends: nothing is awaited
  CHECK_FALSE(rig.panel().is_busy());
  rig.session().select("test", [](Selection& s) { s.layer = 4; });
  rig.settle();
  const auto figure = rig.panel().figure();
  REQUIRE(figure);
  CHECK(figure->caption.at(0).find("layer 4") != std::string::npos);
}

TEST_CASE("switches and viewport are kept in options, nonsense is refused", "[map]") {
  MapRig rig;
  rig.panel().set_options({{"pooling", "mean"},
                           {"scale", "percentile"},
                           {"overlay", true},
                           {"view", {{"query", 80.0}, {"key", 50.0}, {"tokens_per_pixel", 0.05}}}});
  rig.settle();
  const nlohmann::ordered_json options = rig.panel().options();
  CHECK(options["pooling"] == "mean");
  CHECK(options["view"]["query"].get<double>() == Approx(80.0).margin(1.0));
  CHECK(options["view"]["tokens_per_pixel"].get<double>() == Approx(0.05));
  CHECK_THROWS_AS(rig.panel().set_options({{"scale", "cubic"}}), ConfigError);
  CHECK_THROWS_AS(rig.panel().set_options({{"n_sink", 1000}}), ConfigError);
  CHECK_THROWS_AS(rig.panel().set_options({{"view", {{"tokens_per_pixel", -1.0}}}}), ConfigError);
  CHECK(rig.panel().options() == options);
  rig.panel().set_options({{"pooling", "max"}});
  rig.frame(2);
  CHECK(rig.panel().view().is_fitted());
}

/// A store that counts what is written.
class CountingStore final : public TextureStore {
 public:
  int max_side() const override { return 4096; }
  int writes = 0;

 protected:
  ImTextureID create(int, int) override { return reinterpret_cast<ImTextureID>(++next_); }
  void write(ImTextureID, int, int, const std::byte*) override { ++writes; }
  void destroy(ImTextureID) override {}

 private:
  std::uintptr_t next_ = 0;
};

TEST_CASE("only changed tiles are uploaded, a few per frame, and old ones dropped", "[map]") {
  const MapGrid grid{20000, {0, 20000}, std::nullopt};
  const WeightCounts counts;
  const MapColours colours(MapScaleKind::linear, {0.0, 1.0}, plot::ColourMap::sequential, {},
                           counts);
  std::vector<MapTile> tiles;
  for (Index col = 0; col < 30; ++col) tiles.push_back(empty_tile(grid, {0, 40, col}));
  std::vector<const MapTile*> shown;
  for (const MapTile& tile : tiles) shown.push_back(&tile);

  CountingStore store;
  TileTextures textures;
  CHECK(textures.prepare(store, shown, colours, MapPooling::max, 1));  // new colours: all at once
  CHECK(store.writes == 30);
  CHECK(textures.prepare(store, shown, colours, MapPooling::max, 1));
  CHECK(store.writes == 30);
  tiles[3].stamp = next_stamp();
  CHECK(textures.prepare(store, shown, colours, MapPooling::max, 1));
  CHECK(store.writes == 31);
  for (MapTile& tile : tiles) tile.stamp = next_stamp();
  CHECK_FALSE(textures.prepare(store, shown, colours, MapPooling::max, 1));
  CHECK(store.writes == 31 + TileTextures::kMostPerFrame);
  for (int i = 0; i < 3; ++i) textures.prepare(store, shown, colours, MapPooling::max, 1);
  CHECK(store.writes == 61);
  CHECK(textures.find({0, 40, 29}) != nullptr);
  CHECK(textures.find({1, 40, 29}) == nullptr);

  for (Index row = 41; row < 60; ++row) {
    tiles.clear();
    shown.clear();
    for (Index col = 0; col < 30; ++col) tiles.push_back(empty_tile(grid, {0, row, col}));
    for (const MapTile& tile : tiles) shown.push_back(&tile);
    for (int i = 0; i < 4; ++i) textures.prepare(store, shown, colours, MapPooling::max, 1);
    store.collect();
    CHECK(textures.count() <= TileTextures::kMostKept + shown.size());
    CHECK(store.count() <= TileTextures::kMostKept + shown.size());
  }
  textures.clear();
  store.collect();
  CHECK(store.count() == 0);
}

}  // namespace kvscope::gui::test::attention_map_panel_test
