// Exact attention weights of one head, recomputed from its queries and keys wherever somebody
// looks.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "core/attention/score_rows.hpp"
#include "core/base/parallel.hpp"
#include "core/trace/source.hpp"
#include "gui/model/map/map_grid.hpp"

namespace kvscope::gui {

/// Weights pooled into cells. NaN where no recorded query of the cell sees one of its keys.
struct PooledCells {
  int level = 0;
  CellRange rows;
  CellRange cols;
  std::vector<float> max;   // [rows, cols]
  std::vector<float> mean;  // [rows, cols], over the visible pairs
  std::size_t at(Index row, Index col) const {
    return static_cast<std::size_t>((row - rows.begin) * cols.size() + col - cols.begin);
  }
};

/// Queries, keys and the normalisers of the softmax rows of one query head. weight(query, key) =
/// exp(scale q.k - lse(query)), where lse is over the visible keys and the head's attention sink.
/// The recorded lse is used where a few rows, recomputed, agree with it (it cannot where q and k
/// were stored in 16 bits); else rows get theirs when they are first needed. Safe from several
/// threads.
class AttentionHead {
 public:
  /// Throws ConfigError if the head or its queries and keys were not recorded, FormatError for NaN
  /// or Inf in them, Interrupted on a stop.
  static std::shared_ptr<const AttentionHead> load(const TraceSource& trace, Index layer,
                                                   Index q_head, std::stop_token stop);

  const MapGrid& grid() const { return grid_; }
  Index d_head() const { return keys_.d_head(); }
  bool uses_recorded_lse() const { return uses_recorded_lse_; }
  std::size_t bytes() const;

  /// The weights of rows x cols pooled at `level`; the same bits for any number of threads. Throws
  /// Interrupted on a stop. Memory per worker: 16 rows of scores over the columns' keys.
  PooledCells pool(int level, CellRange rows, CellRange cols, ThreadPool& threads,
                   std::stop_token stop) const;

  /// A glance at the same: of each `group` rows of cells only the last recorded query is looked at,
  /// and stands for all of them. A cell that it does not see, but others of the group do, takes the
  /// value of the nearest cell that it sees. Columns are all of the level's.
  PooledCells sample(int level, CellRange rows, Index group, ThreadPool& threads,
                     std::stop_token stop) const;

  /// Empty if the query was not recorded or does not see the key.
  std::optional<double> weight(Index query, Index key) const;

 private:
  AttentionHead(const MapGrid& grid, Tensor<float> q, KeyTable keys, const ScoreRule& rule,
                std::optional<double> sink_logit);
  struct CellSums;
  void take_lse(const TraceSource& trace, Index layer, Index q_head);
  double lse_of_scores(std::span<const double> scores) const;
  /// Scores of queries against a range of keys, capped where the model caps them.
  void compute_scores(ScoreRows& out, TokenRange queries, TokenRange keys) const;
  double lse_of(Index query, ScoreRows& scratch) const;
  std::optional<double> known_lse(Index query) const;
  void remember_lse(Index query, double lse) const;
  void ensure_lse(TokenRange queries, ThreadPool& threads, const std::stop_token& stop) const;
  /// Adds the weights of queries x keys to the cells, which must hold them all.
  void add_rows(TokenRange queries, TokenRange keys, CellSums& cells) const;

  MapGrid grid_;
  Tensor<float> q_;  // [rows.size(), d_head]
  KeyTable keys_;
  ScoreRule rule_;
  std::optional<double> sink_logit_;
  bool uses_recorded_lse_ = false;
  mutable std::mutex mutex_;
  mutable std::vector<double> lse_;  // [rows.size()]; NaN: not known yet
};

/// What the first keys of a head take.
struct SinkShare {
  double share = 0.0;  // of the attention of queries that see many more keys
  /// Less is nothing that one would see.
  static constexpr double kLeast = 0.2;
  bool is_sink() const { return share >= kLeast; }
  std::size_t bytes() const { return sizeof *this; }
};

/// The mean over at most 64 recorded queries that see eight times `n_first` keys or more.
SinkShare sink_share_of(const AttentionHead& head, Index n_first);

}  // namespace kvscope::gui
