// The tiles of the attention map that is looked at: which there are, which are being computed.
//
// The levels from the base on (2048 cells per side) are computed once for the whole map, in bands
// of rows, sampled at first and then exact, the ones in sight first; finer tiles are computed when
// they come into sight. All of it runs on the quick lane in pieces of some tens of milliseconds,
// and is kept in the shared cache: going back to a head shows what there was.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gui/model/jobs/async_value.hpp"
#include "gui/model/map/map_tile.hpp"
#include "gui/model/map/map_view.hpp"

namespace kvscope::gui {

/// Whose map it is.
struct MapSubject {
  std::shared_ptr<const TraceSource> trace;
  std::string key;  // of the open file, the same one for the same contents; begins its cache keys
  Index layer = 0;
  Index q_head = 0;
  std::string growing_key = {};  // of all states of a recording that grows: rows of its maps stay
  bool operator==(const MapSubject&) const = default;
};

/// What to draw, in order: later tiles lie on earlier ones.
struct MapPicture {
  int level = 0;  // what was asked for
  std::vector<const MapTile*> tiles;
  std::shared_ptr<const MapOverview> overview;  // these two keep the tiles alive
  std::vector<std::shared_ptr<const MapTile>> owners;
  Index n_missing = 0;  // tiles of the level that are not there yet
};

/// How far the map is.
struct MapProgress {
  enum class Phase { nothing, loading, sampling, computing, complete, stopped, failed };
  Phase phase = Phase::nothing;
  Index rows_exact = 0;  // of the overview
  Index n_rows = 0;
  std::string error;  // failed: a sentence
};

/// Lives on the frame's thread, as do all its calls.
class AttentionTiles {
 public:
  explicit AttentionTiles(Workbench bench);
  ~AttentionTiles();
  AttentionTiles(const AttentionTiles&) = delete;
  AttentionTiles& operator=(const AttentionTiles&) = delete;

  /// Shows this head from now on; work for another one is cancelled at once. Costs nothing if it is
  /// the one already shown.
  void show(const MapSubject& subject);
  /// Cancels and forgets.
  void clear();
  /// Lets the work rest: what is there stays.
  void cancel();
  /// After cancel() or a failure, or once somebody else cancelled its jobs: goes on.
  void retry();

  /// What there is for the view; starts what is missing. Once per frame.
  MapPicture picture(const MapView& view);
  MapProgress progress() const;
  /// Null until it is loaded.
  std::shared_ptr<const AttentionHead> head() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace kvscope::gui
