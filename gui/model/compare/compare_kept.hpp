// Two answers about the same queries: which keys each keeps, query block by page, and what the
// difference costs in attention.
#pragma once

#include <optional>
#include <vector>

#include "analysis/sweep/sweep_rows.hpp"
#include "gui/model/methods/kept_rows.hpp"

namespace kvscope::gui {

/// Cells of the maps: sizes in positions.
struct MapCells {
  Index query_block = 128;
  Index page_size = 16;
};

/// Blocks of a prefill chunk (or of one decode step) by pages, or whole multiples of them where
/// there would be more than kMostMapBlocks or kMostMapPages.
MapCells map_cells_for(Index n_tokens, Index n_decoded, Phase phase, Index chunk, Index page_size);
inline constexpr Index kMostMapBlocks = 512;
inline constexpr Index kMostMapPages = 1024;

struct KeptComparison {
  MapCells cells;
  std::vector<Index> block_begins;  // first positions of the maps' rows
  std::vector<Index> page_begins;   // and columns
  /// [n_blocks, n_pages]: share of the visible (query, key) pairs of a cell that are kept. NaN
  /// where no measured query sees a key.
  std::vector<float> share_a;
  std::vector<float> share_b;
  std::vector<float> difference;  // share_a - share_b

  /// Means over calls (prefill chunks, decode steps) of the means over their measured queries, as
  /// in a sweep.
  double mass_a = 0.0;  // dense attention on the kept keys
  double mass_b = 0.0;
  double kept_a = 0.0;  // keys
  double kept_b = 0.0;
  double jaccard = 0.0;
  /// Of mass_a - mass_b: 2.5 % and 97.5 % percentiles over 1000 resamples of whole calls, both
  /// sides of a call together. Empty with fewer than two calls.
  std::optional<Interval> interval;
  Index n_queries = 0;
  Index n_calls = 0;
  bool dense_a = false;  // the method left the layer dense
  bool dense_b = false;

  std::size_t bytes() const;
  Index n_blocks() const { return static_cast<Index>(block_begins.size()); }
  Index n_pages() const { return static_cast<Index>(page_begins.size()); }
  /// The cell that holds a query and a key, as an index of the maps; empty outside.
  std::optional<std::size_t> cell_of(Index query, Index key) const;
};

/// Over the queries that both measured. `window`: of the layer, which limits what is visible.
/// Throws ConfigError if there is no such query; Interrupted on a stop.
KeptComparison compare_kept(const KeptRows& a, const KeptRows& b, std::optional<Index> window,
                            Phase phase, Index chunk, MapCells cells, const JobContext& job);

}  // namespace kvscope::gui
