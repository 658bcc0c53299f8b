#include "gui/model/map/attention_tiles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace kvscope::gui {

namespace {

constexpr std::size_t kTilesAtOnce = 2;  // one runs, one waits: the lane never idles between polls
constexpr std::size_t kBandsAtOnce = 2;
constexpr std::size_t kMostHeld = 256;   // tiles of the level that was in sight before
constexpr double kBandProducts = 0.5e9;  // multiplications per band: some tens of milliseconds
constexpr double kMostBandRows = 128.0;  // of cells

/// What a head needs before anything can be drawn: made by a job, since it is tens of megabytes.
struct Loaded {
  std::shared_ptr<const AttentionHead> head;
  std::shared_ptr<const MapOverview> complete;  // either this one, from the cache,
  std::shared_ptr<MapOverview> growing;         // or one to be filled in
};

}  // namespace

struct AttentionTiles::State : std::enable_shared_from_this<State> {
  explicit State(Workbench b) : bench(b) {}

  Workbench bench;
  std::optional<MapSubject> subject;
  std::string prefix;            // of the subject's cache keys
  std::string overview_key;      // the same one while a recording grows
  std::uint64_t generation = 0;  // deliveries of an older one are thrown away
  std::shared_ptr<const AttentionHead> head;
  std::shared_ptr<const MapOverview> overview;
  std::shared_ptr<MapOverview> growing;  // the same one until it is complete
  std::vector<SamplePiece> samples;
  Index near = 0;  // the query in the middle of the view
  std::string error;
  bool is_stopped = false;

  Job loading;
  struct TileJob {
    TileId id;
    Job job;
  };
  std::vector<TileJob> tile_jobs;
  struct BandJob {
    CellRange rows;
    Job job;
  };
  std::vector<BandJob> band_jobs;
  std::vector<std::shared_ptr<const MapTile>> held;

  std::string title() const {
    return fmt::format("Attention map of layer {}, head {}", subject->layer, subject->q_head);
  }
  std::string key_of(TileId id) const {
    return fmt::format("{}{}/{}/{}", prefix, id.level, id.row, id.col);
  }

  /// Starts work for the current subject; `deliver(state, result)` is not called once another one
  /// is shown.
  template <class Result, class Work, class Deliver>
  Job start(Work work, Deliver deliver, bool urgent) {
    return bench.jobs.start(
        title(), Lane::quick,
        [work = std::move(work)](JobContext& context) -> std::any { return work(context); },
        [weak = weak_from_this(), made_for = generation,
         deliver = std::move(deliver)](std::any result) {
          const auto state = weak.lock();
          if (!state || state->generation != made_for) return;
          deliver(*state, std::any_cast<Result>(std::move(result)));
          state->pump();
        },
        urgent);
  }

  void cancel() {
    ++generation;
    loading.cancel();
    loading = {};
    for (const TileJob& running : tile_jobs) running.job.cancel();
    for (const BandJob& running : band_jobs) running.job.cancel();
    tile_jobs.clear();
    band_jobs.clear();
  }

  /// Keeps how far the overview came; it does not change any more.
  void keep_overview() {
    if (!overview || !overview->has_picture()) return;
    bench.cache.put<MapOverview>(overview_key, overview, overview->bytes());
    growing = nullptr;
  }

  void forget() {
    cancel();
    keep_overview();
    subject.reset();
    head = nullptr;
    overview = growing = nullptr;
    samples.clear();
    held.clear();
    error.clear();
    is_stopped = false;
  }

  void take(Loaded loaded) {
    head = std::move(loaded.head);
    growing = std::move(loaded.growing);
    overview = growing ? growing : std::move(loaded.complete);
    if (growing && !growing->has_picture()) samples = sample_plan(head->grid(), near);
  }

  /// A job that failed, or that somebody else cancelled, ends the work until retry(). Jobs that
  /// are cancelled here leave their lists at once.
  void note_ends() {
    bool ended = false;
    const auto note = [&](const Job& job) {
      if (!job) return;
      const JobStatus status = job.status();
      if (status.state == JobState::failed) error = status.error;
      if (status.state == JobState::cancelled) is_stopped = true;
      ended = ended || status.state == JobState::failed || status.state == JobState::cancelled;
    };
    note(loading);
    for (const TileJob& running : tile_jobs) note(running.job);
    for (const BandJob& running : band_jobs) note(running.job);
    if (ended) cancel();
  }
  bool is_paused() const { return is_stopped || !error.empty(); }

  void start_loading() {
    auto known = bench.cache.find<AttentionHead>(prefix + "head");
    auto seen = bench.cache.find<MapOverview>(overview_key);
    const auto fits = [](const MapOverview* map, const AttentionHead& of_head) {
      return map != nullptr && map->grid().n_tokens == of_head.grid().n_tokens &&
             map->grid().rows == of_head.grid().rows;
    };
    if (known && fits(seen.get(), *known) && seen->is_complete()) {
      take({std::move(known), std::move(seen), nullptr});
      return;
    }
    loading = start<Loaded>(
        [trace = subject->trace, layer = subject->layer, q_head = subject->q_head, known, seen,
         fits](JobContext& context) {
          Loaded loaded;
          loaded.head = known ? known : AttentionHead::load(*trace, layer, q_head, context.stop);
          const bool is_own = fits(seen.get(), *loaded.head);
          if (is_own && seen->is_complete()) {
            loaded.complete = seen;
          } else if (is_own) {
            loaded.growing = std::make_shared<MapOverview>(*seen);
          } else {
            loaded.growing = std::make_shared<MapOverview>(loaded.head->grid());
            if (seen) loaded.growing->adopt(*seen);
          }
          return loaded;
        },
        [](State& state, Loaded loaded) {
          state.loading = {};
          state.bench.cache.put<AttentionHead>(state.prefix + "head", loaded.head,
                                               loaded.head->bytes());
          state.take(std::move(loaded));
        },
        /*urgent=*/true);
  }

  /// Computes rows of the overview: of one query in `group` rows of cells, or of all.
  void start_band(CellRange rows, std::optional<Index> group) {
    const Progress progress{"overview", overview->n_exact(), overview->n_rows(), "rows"};
    Job job = start<std::shared_ptr<const PooledCells>>(
        [from = head, rows, group, progress](JobContext& context) {
          if (context.progress) context.progress(progress);
          const int level = from->grid().base_level();
          const CellRange cols{0, from->grid().cells(level)};
          return std::make_shared<const PooledCells>(
              group ? from->sample(level, rows, *group, context.pool, context.stop)
                    : from->pool(level, rows, cols, context.pool, context.stop));
        },
        [rows, group](State& state, const std::shared_ptr<const PooledCells>& cells) {
          std::erase_if(state.band_jobs, [&](const BandJob& band) { return band.rows == rows; });
          state.growing->put(*cells, group ? RowState::sampled : RowState::exact);
          if (state.growing->is_complete()) state.keep_overview();
        },
        /*urgent=*/group.has_value());
    band_jobs.push_back({rows, std::move(job)});
  }

  /// Starts what the overview lacks.
  void pump() {
    if (!subject || is_paused()) return;
    if (!head) {
      if (!loading) start_loading();
      if (!head) return;
    }
    while (growing && band_jobs.size() < kBandsAtOnce) {
      if (!samples.empty()) {
        const SamplePiece piece = samples.back();
        samples.pop_back();
        start_band(piece.rows, piece.group);
        continue;
      }
      const MapGrid& grid = head->grid();
      const double products_of_row = static_cast<double>(grid.n_tokens << grid.base_level()) *
                                     static_cast<double>(head->d_head()) / 2.0;
      const auto most =
          static_cast<Index>(std::clamp(kBandProducts / products_of_row, 1.0, kMostBandRows));
      std::vector<CellRange> busy;
      for (const BandJob& band : band_jobs) busy.push_back(band.rows);
      const auto rows = growing->next_rows(near, most, busy);
      if (!rows) return;
      start_band(*rows, std::nullopt);
    }
  }

  std::shared_ptr<const MapTile> find_tile(TileId id) const {
    for (const auto& tile : held) {
      if (tile->id == id) return tile;
    }
    return bench.cache.find<MapTile>(key_of(id));
  }

  void start_tile(TileId id) {
    Job job = start<std::shared_ptr<const MapTile>>(
        [from = head, id](JobContext& context) {
          return std::make_shared<const MapTile>(
              compute_tile(*from, id, context.pool, context.stop));
        },
        [id](State& state, const std::shared_ptr<const MapTile>& tile) {
          std::erase_if(state.tile_jobs, [&](const TileJob& own) { return own.id == id; });
          state.bench.cache.put<MapTile>(state.key_of(id), tile, tile->bytes());
          state.held.push_back(tile);
        },
        /*urgent=*/true);
    tile_jobs.push_back({id, std::move(job)});
  }

  /// The tiles of a level that is finer than the overview; starts the missing ones.
  void add_fine_tiles(const MapView& view, MapPicture& picture) {
    std::vector<std::shared_ptr<const MapTile>> wanted;
    std::vector<TileId> missing;
    for (TileId id : view.tiles(head->grid(), picture.level)) {
      if (auto tile = find_tile(id)) {
        wanted.push_back(std::move(tile));
      } else {
        missing.push_back(id);
      }
    }
    std::erase_if(tile_jobs, [&](const TileJob& running) {
      const bool useful = std::ranges::find(missing, running.id) != missing.end();
      if (!useful) running.job.cancel();
      return !useful;
    });
    for (TileId id : missing) {
      if (tile_jobs.size() >= kTilesAtOnce || is_paused()) break;
      const auto runs = [&](const TileJob& running) { return running.id == id; };
      if (std::ranges::none_of(tile_jobs, runs)) start_tile(id);
    }
    picture.n_missing = static_cast<Index>(missing.size());

    // what was in sight at another level stands in until this one is whole
    std::vector<std::shared_ptr<const MapTile>> others;
    if (!missing.empty()) {
      const TokenRange queries = view.queries();
      const TokenRange keys = view.keys();
      for (const auto& tile : held) {
        const MapGrid& grid = head->grid();
        const bool in_sight =
            overlap(grid.tokens(tile->id.level, grid.tile_rows(tile->id)), queries).size() > 0 &&
            overlap(grid.tokens(tile->id.level, grid.tile_cols(tile->id)), keys).size() > 0;
        if (tile->id.level != picture.level && in_sight && others.size() < kMostHeld) {
          others.push_back(tile);
        }
      }
      std::ranges::stable_sort(others, [&](const auto& a, const auto& b) {
        return std::abs(a->id.level - picture.level) > std::abs(b->id.level - picture.level);
      });
    }
    held = others;
    held.insert(held.end(), wanted.begin(), wanted.end());
    picture.owners = held;
    for (const auto& tile : held) picture.tiles.push_back(tile.get());
  }

  void add_overview_tiles(const MapView& view, int level, MapPicture& picture) const {
    for (TileId id : view.tiles(head->grid(), level)) {
      if (const MapTile* tile = overview->tile(id)) picture.tiles.push_back(tile);
    }
  }
};

AttentionTiles::AttentionTiles(Workbench bench) : state_(std::make_shared<State>(bench)) {}

AttentionTiles::~AttentionTiles() {
  state_->cancel();  // and nothing else: the bench may be gone already
}

void AttentionTiles::show(const MapSubject& subject) {
  if (state_->subject == subject) return;
  state_->forget();
  state_->subject = subject;
  state_->prefix = fmt::format("{}map/{}/{}/", subject.key, subject.layer, subject.q_head);
  state_->overview_key = fmt::format(
      "{}map/{}/{}/overview", subject.growing_key.empty() ? subject.key : subject.growing_key,
      subject.layer, subject.q_head);
  state_->pump();
}

void AttentionTiles::clear() {
  state_->forget();
}

void AttentionTiles::cancel() {
  state_->cancel();
  state_->is_stopped = state_->subject.has_value();
}

void AttentionTiles::retry() {
  state_->error.clear();
  state_->is_stopped = false;
  state_->pump();
}

MapPicture AttentionTiles::picture(const MapView& view) {
  State& state = *state_;
  MapPicture picture;
  const TokenRange queries = view.queries();
  state.near = (queries.begin + queries.end) / 2;
  state.note_ends();
  state.pump();
  if (!state.head || !state.overview) return picture;
  picture.overview = state.overview;
  const MapGrid& grid = state.head->grid();
  const int base = state.overview->base_level();
  picture.level = std::min(view.level(), grid.top_level());
  if (picture.level >= base) {
    for (const auto& running : state.tile_jobs) running.job.cancel();
    state.tile_jobs.clear();
    state.held.clear();
    state.add_overview_tiles(view, picture.level, picture);
    return picture;
  }
  MapPicture fine = picture;
  state.add_fine_tiles(view, fine);
  if (fine.n_missing > 0) state.add_overview_tiles(view, base, picture);
  picture.owners = std::move(fine.owners);
  picture.tiles.insert(picture.tiles.end(), fine.tiles.begin(), fine.tiles.end());
  picture.n_missing = fine.n_missing;
  return picture;
}

MapProgress AttentionTiles::progress() const {
  const State& state = *state_;
  MapProgress progress;
  using Phase = MapProgress::Phase;
  if (!state.subject) return progress;
  if (state.overview) {
    progress.rows_exact = state.overview->n_exact();
    progress.n_rows = state.overview->n_rows();
  }
  progress.error = state.error;
  if (!state.error.empty()) {
    progress.phase = Phase::failed;
  } else if (state.is_stopped) {
    progress.phase = Phase::stopped;
  } else if (!state.head) {
    progress.phase = Phase::loading;
  } else if (state.overview->is_complete()) {
    progress.phase = Phase::complete;
  } else {
    progress.phase = state.samples.empty() ? Phase::computing : Phase::sampling;
  }
  return progress;
}

std::shared_ptr<const AttentionHead> AttentionTiles::head() const {
  return state_->head;
}

}  // namespace kvscope::gui
