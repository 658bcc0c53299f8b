// What is in sight as a figure: its cells, its ranges, and what its caption says.
#include "gui/model/map/map_figure.hpp"

#include <catch2/catch_test_macros.hpp>

#include "gui_model/map/naive_map.hpp"
#include "notebooks_export/figure_csv.hpp"

namespace kvscope::gui::test::map_figure_test {
namespace {

struct Shown {
  Cache cache{std::size_t{1} << 28};
  JobRunner jobs{{}, 2};
  std::shared_ptr<const TraceSource> trace;
  AttentionTiles tiles{{jobs, cache}};
  MapView view;
  MapPicture picture;
  MapOptions options;

  Shown(Index n, TokenRange rows) {
    MemoryTrace whole = map_trace(n);
    TraceInfo info = whole.info();
    info.capture.lse = false;
    info.rows = rows;
    trace = std::make_shared<const MemoryTrace>(with_info(whole, info));
    tiles.show({trace, "a", 0, 0});
    view.set_size(200, 100);
    view.set_map(n);
  }
  void look() {
    for (int i = 0; i < 100; ++i) {
      REQUIRE(jobs.drain(60.0));
      picture = tiles.picture(view);
      if (picture.n_missing == 0 && jobs.is_idle()) return;
    }
  }
  std::optional<plot::Figure> figure(MapScaleKind kind) {
    options.scale = kind;
    WeightCounts counts;
    for (const MapTile* tile : picture.tiles)
      counts.add(*tile, options.pooling, 0, {0, 1 << 20}, {0, 1 << 20});
    const MapColours colours(kind, automatic_range(kind, counts), plot::ColourMap::sequential, {},
                             counts);
    return map_figure(picture, tiles.head()->grid(), view, options, colours,
                      {"t.h5", "small", 0, 0}, 150, 20);
  }
};

const plot::HeatMap& heat_map(const plot::Figure& figure) {
  return std::get<plot::HeatMap>(figure.panels.at(0).marks.at(0));
}

TEST_CASE("a figure of the map has the cells in sight, pooled as they are shown", "[map]") {
  const Index n = 300;
  Shown shown(n, {40, n});
  shown.look();
  const std::vector<double> map = naive_map(*shown.trace, 0, 0);
  for (const MapPooling pooling : {MapPooling::max, MapPooling::mean}) {
    shown.options.pooling = pooling;
    for (int step = 0; step < 3; ++step) {
      shown.look();
      const auto figure = shown.figure(MapScaleKind::linear);
      REQUIRE(figure);
      plot::check_figure(*figure);
      const plot::HeatMap& cells = heat_map(*figure);
      const Index side = Index{1} << shown.picture.level;
      for (Index row = 0; row < cells.n_rows; ++row) {
        for (Index col = 0; col < cells.n_cols; ++col) {
          const NaiveCell expected =
              naive_cell(map, n, side, static_cast<Index>(cells.y.low) / side + row,
                         static_cast<Index>(cells.x.low) / side + col);
          const float value = cells.values[static_cast<std::size_t>(row * cells.n_cols + col)];
          REQUIRE(same(value, pooling == MapPooling::max ? expected.max : expected.mean));
        }
      }
      CHECK_FALSE(figure_csv(*figure).empty());
      std::string caption;
      for (const std::string& sentence : figure->caption) caption += sentence + "\n";
      CHECK(caption.find("t.h5") != std::string::npos);
      CHECK(caption.find("positions 40 to 299 only") != std::string::npos);
      CHECK((caption.find("pairs of query and key") != std::string::npos) == (side > 1));
      shown.view.zoom(2.5, 60, 70);
    }
    shown.view.fit();
  }
}

TEST_CASE("a pooled cell's heaviest pair is the one that its maximum is of", "[map]") {
  const Index n = 300;
  Shown shown(n, {40, n});
  shown.look();
  REQUIRE(shown.picture.level > 0);
  const std::vector<double> map = naive_map(*shown.trace, 0, 0);
  const auto head = shown.tiles.head();
  int n_cells = 0;
  for (const MapPair pair : {MapPair{150, 20}, {299, 0}, {299, 298}, {60, 55}, {41, 3}}) {
    const auto cell = cell_at(shown.picture, head->grid(), pair);
    REQUIRE(cell);
    const auto best = heaviest_pair(*head, *cell);
    double most = -1.0;
    MapPair expected;
    for (Index query = std::max<Index>(40, cell->queries.begin); query < cell->queries.end;
         ++query) {
      for (Index key = cell->keys.begin; key < std::min(cell->keys.end, query + 1); ++key) {
        const double weight = map[static_cast<std::size_t>(query * n + key)];
        if (!(weight > most)) continue;
        most = weight;
        expected = {query, key};
      }
    }
    REQUIRE(best);
    CHECK(static_cast<float>(head->weight(best->query, best->key).value()) ==
          static_cast<float>(head->weight(expected.query, expected.key).value()));
    ++n_cells;
  }
  CHECK(n_cells == 5);
}

}  // namespace
}  // namespace kvscope::gui::test::map_figure_test
