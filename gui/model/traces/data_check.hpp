// Is what was recorded finite? Every number of a KV group is read once; norms come along.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "analysis/plot/figure.hpp"
#include "gui/model/jobs/async_value.hpp"
#include "gui/model/traces/document.hpp"

namespace kvscope::gui {

/// Norms of one array of one head, in at most kNormBins bins of neighbouring positions.
struct HeadNorms {
  Index head = 0;        // true index: of queries for q, of keys for k
  TokenRange positions;  // recorded ones
  double mean = 0.0;     // over all finite rows
  double largest = 0.0;
  std::vector<float> bins;  // mean Euclidean norm; NaN where no row of the bin could be read
};
inline constexpr Index kNormBins = 120;
/// Neighbouring positions that share a bin.
Index norm_bin_width(TokenRange positions);

/// The first number of a head that is not finite.
struct DataProblem {
  Index layer = 0;
  std::string array;  // "q", "k" or "v"
  Index head = 0;     // true index: of queries for q, else of keys
  Index pos = 0;      // of the first row that could not be read
  std::string what;   // "NaN", "Inf", or the reader's own words
  /// "Layer 3, query head 5: q holds NaN, first at position 17."
  std::string sentence() const;
  /// "k holds NaN", "k cannot be read".
  std::string brief() const;
};

/// One KV head of one layer and the recorded query heads that read it.
struct GroupCheck {
  std::vector<HeadNorms> q;  // recorded query heads of the group, ascending
  HeadNorms k;
  std::vector<DataProblem> problems;
  std::size_t bytes() const;
};

/// For keys of a cache, after Document::key().
std::string group_check_key(Index layer, Index kv_head);

/// Reads q, k and v of the group from the file, some thousand rows at a time, past the cache of
/// slices. Throws ConfigError if the group was not recorded, Interrupted when stopped. What cannot
/// be read is a problem in the answer, not an error.
GroupCheck check_group(const Document& document, Index layer, Index kv_head, JobContext& job);

/// Norms of a query head and of its keys over positions. Empty if the group has no such head.
std::optional<plot::Figure> norms_figure(const Document& document, Index layer, Index q_head,
                                         const GroupCheck& check);

/// Checks of the open document, layer by layer as they are looked at, one group at a time and only
/// while no other work waits.
class DataChecks {
 public:
  /// Call in every frame: starts what is missing of the layer, takes what is done. A null document,
  /// or another one, stops the work for the one before.
  void update(Workbench bench, const std::shared_ptr<const Document>& document, Index layer);
  /// Null until the group was checked.
  const GroupCheck* find(Index layer, Index kv_head) const;
  /// Norms of one query head; null until it was checked.
  const HeadNorms* find_q(Index layer, Index q_head) const;
  /// Of all layers that were checked so far.
  const std::vector<DataProblem>& problems() const { return problems_; }
  /// Largest mean norm of a query head seen so far; 0 if none was.
  double largest_q_norm() const { return largest_q_norm_; }
  /// Groups of the last update's layer that are still to be checked.
  bool is_busy() const { return is_busy_; }

 private:
  using Place = std::pair<Index, Index>;  // layer, KV head
  void take(Place place, std::shared_ptr<const GroupCheck> check);

  std::string document_;  // its key
  AsyncValue<GroupCheck> slot_;
  std::string asked_;
  std::map<Place, std::shared_ptr<const GroupCheck>> groups_;
  std::set<Place> skipped_;  // cancelled by hand, or failed
  std::vector<DataProblem> problems_;
  double largest_q_norm_ = 0.0;
  bool is_busy_ = false;
};

/// layer, q_head, kv_head, recorded, kind, and mean norms where they are known: one line per cell
/// of the grid.
std::string head_table_csv(const TraceInfo& info, const DataChecks& checks);

}  // namespace kvscope::gui
