// Tiles of a map: exact in the end at every level, bounded, given up when another head is shown.
#include "gui/model/map/attention_tiles.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "gui_model/map/naive_map.hpp"

namespace kvscope::gui::test::attention_tiles_test {

constexpr double kSeconds = 60.0;

struct Rig {
  explicit Rig(std::size_t limit = std::size_t{1} << 30, int threads = 2)
      : cache(limit), jobs({}, threads) {}
  Cache cache;
  JobRunner jobs;
  Workbench bench() { return {jobs, cache}; }
};

std::shared_ptr<const TraceSource> shared(MemoryTrace trace) {
  return std::make_shared<const MemoryTrace>(std::move(trace));
}

std::shared_ptr<const TraceSource> plain_trace(Index n_tokens, bool sinks = false) {
  MemoryTrace trace = map_trace(n_tokens, sinks);
  TraceInfo info = trace.info();
  info.capture.lse = false;
  return shared(with_info(trace, info));
}

/// Asks until nothing is missing.
MapPicture settled(AttentionTiles& tiles, const MapView& view, JobRunner& jobs) {
  for (int i = 0; i < 400; ++i) {
    REQUIRE(jobs.drain(kSeconds));
    const MapPicture picture = tiles.picture(view);
    if (picture.n_missing == 0 && jobs.is_idle()) return picture;
  }
  FAIL("the picture was never whole");
  return {};
}

void check_tile(const MapTile& tile, const std::vector<double>& map, Index n) {
  Index wrong = 0;
  for (Index row = 0; row < tile.n_rows; ++row) {
    for (Index col = 0; col < tile.n_cols; ++col) {
      const NaiveCell expected =
          naive_cell(map, n, Index{1} << tile.id.level, tile.id.row * kTileCells + row,
                     tile.id.col * kTileCells + col);
      const auto at = static_cast<std::size_t>(row * tile.n_cols + col);
      if (!same(tile.values(MapPooling::max)[at], expected.max)) ++wrong;
      if (!same(tile.values(MapPooling::mean)[at], expected.mean)) ++wrong;
    }
  }
  INFO("level " << tile.id.level << " row " << tile.id.row << " col " << tile.id.col);
  CHECK(wrong == 0);
}

TEST_CASE("the levels of a whole map equal the naive one, whatever the order of rows", "[map]") {
  for (Index n : {301, 600}) {
    MemoryTrace whole = map_trace(n, /*has_sink_logits=*/true);
    TraceInfo info = whole.info();
    info.capture.lse = false;
    info.rows = {n / 7, n - 5};
    info.window[0] = n / 2;
    const MemoryTrace trace = with_info(whole, info);
    const std::vector<double> map = naive_map(trace, 0, 1);
    const auto head = AttentionHead::load(trace, 0, 1, {});
    ThreadPool pool(2);
    MapOverview overview(head->grid());
    REQUIRE(overview.base_level() == 0);
    CHECK_FALSE(overview.has_picture());
    overview.put(head->sample(0, {0, n}, 32, pool, {}), RowState::sampled);
    CHECK(overview.has_picture());
    CHECK(overview.n_exact() == 0);
    while (const auto rows = overview.next_rows(n / 3, 50)) {
      CHECK(rows->size() <= 50);
      overview.put(head->pool(0, *rows, {0, n}, pool, {}), RowState::exact);
      // a worse answer that comes later changes nothing
      overview.put(head->sample(0, *rows, 32, pool, {}), RowState::sampled);
    }
    CHECK(overview.is_complete());
    CHECK(overview.n_rows() == n - 5 - n / 7);
    const int top = head->grid().top_level();
    REQUIRE(top >= 1);
    for (int level = 0; level <= top; ++level) {
      for (Index row = 0; row < head->grid().tiles(level); ++row) {
        for (Index col = 0; col < head->grid().tiles(level); ++col) {
          const TileId id{level, row, col};
          if (const MapTile* tile = overview.tile(id)) {
            check_tile(*tile, map, n);
          } else {
            CHECK_FALSE(head->grid().sees_anything(id));
          }
        }
      }
    }
    const MapTile* last = overview.tile({top, 0, 0});
    REQUIRE(last != nullptr);
    CHECK(last->rows.front() == RowState::unrecorded);
    CHECK(last->rows[last->n_rows / 2] == RowState::exact);
  }
}

TEST_CASE("a short map is exact at every scale of the view", "[map]") {
  Rig desk;
  const Index n = 517;
  const auto trace = plain_trace(n, /*sinks=*/true);
  const std::vector<double> map = naive_map(*trace, 0, 0);
  AttentionTiles tiles(desk.bench());
  tiles.show({trace, "a", 0, 0});
  MapView view;
  view.set_size(300, 300);
  view.set_map(n);
  for (int i = 0; i < 3; ++i) {
    const MapPicture picture = settled(tiles, view, desk.jobs);
    CHECK(picture.level == std::min(view.level(), 2));
    CHECK_FALSE(picture.tiles.empty());
    for (const MapTile* tile : picture.tiles) {
      check_tile(*tile, map, n);
      CHECK(std::count(tile->rows.begin(), tile->rows.end(), RowState::exact) == tile->n_rows);
    }
    view.zoom(2.0, 40, 200);
  }
  CHECK(tiles.progress().phase == MapProgress::Phase::complete);
  CHECK(tiles.progress().rows_exact == n);
}

TEST_CASE("a long map is sampled at first and exact in the end", "[map]") {
  Rig desk;
  const Index n = 8300;  // the overview begins at level 3
  const auto trace = plain_trace(n);
  AttentionTiles tiles(desk.bench());
  tiles.show({trace, "a", 0, 1});
  MapView view;
  view.set_size(1100, 1100);
  view.set_map(n);
  REQUIRE(view.level() == 3);
  bool was_sampled = false;
  while (tiles.progress().phase != MapProgress::Phase::complete) {
    desk.jobs.poll();
    for (const MapTile* tile : tiles.picture(view).tiles) {
      was_sampled =
          was_sampled || std::count(tile->rows.begin(), tile->rows.end(), RowState::sampled) > 0;
    }
    REQUIRE(tiles.progress().error.empty());
  }
  CHECK(was_sampled);
  ThreadPool pool(2);
  const CellRange rows{1000, 1038};
  const PooledCells expected =
      tiles.head()->pool(3, rows, {0, tiles.head()->grid().cells(3)}, pool, {});
  for (const MapTile* tile : tiles.picture(view).tiles) {
    for (Index row = 0; row < tile->n_rows; ++row) {
      CHECK(tile->rows[row] == RowState::exact);
      const Index own = tile->id.row * kTileCells + row;
      if (own < rows.begin || own >= rows.end) continue;
      for (Index col = 0; col < tile->n_cols; ++col) {
        const auto at = static_cast<std::size_t>(row * tile->n_cols + col);
        const std::size_t from = expected.at(own, tile->id.col * kTileCells + col);
        REQUIRE(same(tile->max[at], static_cast<double>(expected.max[from])));
        REQUIRE(same(tile->mean[at], static_cast<double>(expected.mean[from])));
      }
    }
  }
}

TEST_CASE("a cache that is too small for anything still ends, with a whole picture", "[map]") {
  Rig desk(/*limit=*/1000);
  const auto trace = plain_trace(2300);
  AttentionTiles tiles(desk.bench());
  tiles.show({trace, "a", 0, 0});
  MapView view;
  view.set_size(500, 400);
  view.set_map(2300);
  view.fit({{1900, 300}, {2200, 700}});
  const MapPicture picture = settled(tiles, view, desk.jobs);
  CHECK(picture.n_missing == 0);
  CHECK_FALSE(picture.tiles.empty());
  CHECK(desk.cache.bytes() <= 1000);
  for (int i = 0; i < 50; ++i) {
    view.pan(-40, i % 2 == 0 ? 30 : -30);
    settled(tiles, view, desk.jobs);
    CHECK(tiles.picture(view).owners.size() <= 20);  // what is held is what is in sight
  }
}

/// The first tokens of a trace, as a recording shows them while it grows.
class Cut final : public TraceSource {
 public:
  Cut(std::shared_ptr<const TraceSource> whole, Index n) : whole_(std::move(whole)) {
    info_ = whole_->info();
    info_.n_tokens = info_.rows.end = n;
  }
  const TraceInfo& info() const override { return info_; }
  std::string where() const override { return whole_->where(); }
  std::span<const TokenId> tokens() const override {
    return whole_->tokens().first(static_cast<std::size_t>(info_.n_tokens));
  }
  std::vector<std::string> token_bytes() const override { return {}; }
  Tensor<float> read(TraceTensor what, Index layer, Index head, TokenRange range) const override {
    return whole_->read(what, layer, head, range);
  }

 private:
  std::shared_ptr<const TraceSource> whole_;
  TraceInfo info_;
};

TEST_CASE("of a recording that grew only the new rows of the map are computed", "[map]") {
  constexpr Index kLong = 2600;
  const auto whole = plain_trace(kLong);
  for (const Index n : {1900, 2300}) {  // cells of one token, which become cells of two; of two
    INFO(n);
    Rig desk;
    AttentionTiles tiles(desk.bench());
    MapView view;
    view.set_size(200, 200);
    view.set_map(n);
    tiles.show({std::make_shared<Cut>(whole, n), "first/", 0, 0, "recording/"});
    settled(tiles, view, desk.jobs);
    view.grow(kLong);
    CHECK(view.is_fitted());
    tiles.show({whole, "second/", 0, 0, "recording/"});
    while (tiles.progress().rows_exact == 0) desk.jobs.poll();
    CHECK(tiles.progress().rows_exact >= n / 2);  // known before anything was computed
    settled(tiles, view, desk.jobs);
    CHECK(tiles.progress().phase == MapProgress::Phase::complete);

    AttentionTiles anew(desk.bench());
    anew.show({whole, "third/", 0, 0});
    settled(anew, view, desk.jobs);
    const MapOverview& a = *tiles.picture(view).overview;
    const MapOverview& b = *anew.picture(view).overview;
    Index wrong = 0;
    for (int level = b.base_level(); level <= b.grid().top_level(); ++level) {
      for (Index row = 0; row < b.grid().tiles(level); ++row) {
        for (Index col = 0; col <= row; ++col) {
          const MapTile* own = a.tile({level, row, col});
          const MapTile* other = b.tile({level, row, col});
          REQUIRE((own != nullptr) == (other != nullptr));
          if (own == nullptr) continue;
          CHECK(own->rows == other->rows);
          for (std::size_t i = 0; i < own->max.size(); ++i) {
            const bool same_max = own->max[i] == other->max[i] ||
                                  (std::isnan(own->max[i]) && std::isnan(other->max[i]));
            // means of cells that were folded differ by rounding
            const bool same_mean =
                own->mean.empty() || std::isnan(other->mean[i])
                    ? own->mean.empty() || std::isnan(own->mean[i])
                    : std::abs(own->mean[i] - other->mean[i]) <= 1e-6F * other->mean[i];
            wrong += same_max && same_mean ? 0 : 1;
          }
        }
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("a picture outlives the tiles that made it", "[map]") {
  Rig desk;
  MapPicture picture;
  {
    AttentionTiles tiles(desk.bench());
    MapView view;
    view.set_size(300, 300);
    view.set_map(300);
    tiles.show({plain_trace(300), "a", 0, 0});
    picture = settled(tiles, view, desk.jobs);
    tiles.clear();
  }
  desk.cache.drop_prefix("");
  REQUIRE_FALSE(picture.tiles.empty());
  CHECK(picture.tiles.front()->n_rows > 0);
}

}  // namespace kvscope::gui::test::attention_tiles_test
