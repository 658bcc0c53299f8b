// The attention maps of a trace as one HTML page that needs nothing else: pan, zoom, hover, an
// atlas of the heads. No network, no other file; what is text in the trace is text in the page.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "analysis/base/analysis.hpp"
#include "analysis/base/trace_selection.hpp"
#include "analysis/kinds/attention_map.hpp"
#include "core/base/fields.hpp"
#include "core/base/progress.hpp"

namespace kvscope {

struct AttentionPageOptions {
  TraceSelection selection;
  Index max_cells = option(
      max_cells, "max-cells", 0,
      "most cells per side of a map; longer contexts are pooled in equal blocks; 0: as many as "
      "--max-size allows",
      in(0.0, 16384.0));
  double max_size = option(max_size, "max-size", 16.0,
                           "size of the page, in MB: more heads make coarser maps", in(0.5, 512.0));
  MapPooling pooling = option(pooling, "pooling", MapPooling::max,
                              "a cell shows the max or the mean of its weights");
  std::string needle =
      option(needle, "needle", "", "positions of the retrieval score, as in kvscope analyze heads");
};

/// Smaller weights are told apart from none, not from each other.
inline constexpr double kPageFloor = 1e-9;

/// A weight in 16 bits: 0 for NaN (not visible), 1 below the floor, else its logarithm in 65533
/// equal steps; the relative error is below 2e-4.
std::uint16_t page_code(double weight);
double weight_of_page_code(std::uint16_t code);

/// The codes of a map [n_cells, n_cells] as the page holds them: of each row r the cells from
/// first_page_column(r) to r, two bytes each, base64.
std::string encode_page_map(std::span<const float> map, Index n_cells, Index block,
                            std::optional<Index> window);
/// The first cell that some query of row `r` may see.
Index first_page_column(Index r, Index block, std::optional<Index> window);

/// What a page holds besides its text.
struct AttentionPage {
  std::string html;
  Index n_heads = 0;
  Index n_cells = 0;
  Index block = 0;
};

/// Throws ConfigError for options out of range, heads that were not recorded, a trace without
/// all q and
/// k, or maps that do not fit into max_size with 16 cells per side (or the cells asked for);
/// Interrupted on a stop.
AttentionPage make_attention_page(const TraceSource& trace, const AttentionPageOptions& options,
                                  ThreadPool& pool, const ProgressFn& progress,
                                  std::stop_token stop, const ResultProvenance& provenance);

}  // namespace kvscope
