// Measures the selections of all pairs in one layer and call: dense rows once, then every metric of
// every pair.
#pragma once

#include <span>
#include <vector>

#include "core/attention/score_rows.hpp"
#include "core/base/parallel.hpp"
#include "core/sim/replay.hpp"
#include "core/sim/replay_run.hpp"

namespace kvscope {

/// One pair's selection in the call at hand.
struct PairSelection {
  const Selection* selection = nullptr;
  SelectCost cost;
  std::optional<Budget> budget;
  Index page_size = 1;
};

/// Fills a LayerReplay call by call. Scratch memory is per worker, so keep one for a whole replay.
class ReplayMeasure {
 public:
  ReplayMeasure(const TraceInfo& info, const ReplayOptions& options, ThreadPool& pool);

  /// Everything sized for `calls`, nothing measured yet.
  LayerReplay make_layer(Index layer, bool has_window, const std::vector<TokenRange>& calls,
                         std::size_t n_pairs) const;

  /// Measures call `index` of `out`. q [n_q, n_tok, d_head]; tables: one per KV head; previous:
  /// keys of the last row in the call before, [n_pairs * n_heads], replaced by this call's.
  void measure(LayerReplay& out, std::size_t index, const std::vector<PairSelection>& selections,
               TensorView<const float> q, const ReplayLayer& layer,
               const std::vector<KeyTable>& tables, std::vector<std::vector<KeyPos>>& previous);

  /// Files a call of a layer that stays dense because of its window.
  void file_windowed(LayerReplay& out, std::size_t index, Index window) const;

 private:
  static constexpr std::size_t kRowMetrics = 13;  // ReplayMetric::mass to forced_share
  /// A measured query head of the row at hand.
  struct RowHead {
    Index q_head = 0;
    Index row = 0;         // of the call
    std::size_t slot = 0;  // among the measured heads
    std::span<const float> query;
  };
  struct RowPlace {
    Index pos = 0;
    Index n_visible = 0;
    std::size_t row_slot = 0;  // among the call's measured rows
  };
  /// Memory of one thread: the row at hand for the measured heads of a group.
  struct Worker {
    ScoreRows scores;
    std::vector<RowHead> heads;
    std::vector<DenseRow> dense;                // [n_heads]
    std::vector<ListView> lists;                // [n_heads, n_pairs]
    std::vector<std::span<const KeyPos>> keys;  // [n_heads, n_pairs] what the row sees of them
    std::vector<Index> ks;
    std::vector<DenseRow*> rows;  // heads that are compared together, and what comes out
    std::vector<RowExtras> extras;
    std::vector<RowQuality> qualities;
    std::vector<AgeHistogram> ages;  // [n_pairs]
  };
  struct Job;  // what one call's workers share
  void measure_row(const Job& job, Index kv_head, Index row_slot, Worker& worker);
  void measure_list(const Job& job, std::size_t p, const RowPlace& at, std::size_t first,
                    std::size_t n, Worker& worker);
  RowExtras extras_of(const Selection& selection, const ListView& list,
                      std::span<const KeyPos> keys, const RowHead& head) const;
  void measure_cost(const Job& job, std::size_t pair, Index kv_head) const;
  std::optional<std::size_t> slot_of_head(Index q_head) const;  // empty: not measured

  const TraceInfo& info_;
  const ReplayOptions& options_;
  ThreadPool& pool_;
  std::vector<Index> q_heads_;
  std::vector<Worker> workers_;
  std::vector<double> rows_;  // [n_pairs, kRowMetrics, n_heads, n_rows] of the call at hand
};

}  // namespace kvscope
