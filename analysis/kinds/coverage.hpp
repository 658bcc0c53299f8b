// Coverage: how much of the true attention a selection keeps, where it keeps and loses it, and how
// few keys would do.
#pragma once

#include <string>
#include <vector>

#include "analysis/base/analysis.hpp"
#include "core/base/fields.hpp"
#include "core/base/progress.hpp"
#include "core/sim/replay.hpp"

namespace kvscope {

struct CoverageOptions {
  std::vector<MethodSpec> selectors;  // may be empty
  std::vector<Budget> budgets;        // each selector takes those it understands
  ReplayOptions replay;               // which calls, rows and heads are measured
  std::vector<Index> layers;          // empty = all that are recorded
  std::vector<double> shares = {0.5, 0.8, 0.9, 0.95, 0.99};  // p's of the nucleus sizes, (0, 1]

  Index query_block = option(query_block, "query-block", 128,
                             "positions per row of the query block x page maps", at_least(1));
  Index page_size = option(page_size, "page-size", 16, "keys per column of the maps", at_least(1));
  Index max_cells =
      option(max_cells, "max-cells", Index{1} << 26,
             "most cells of all maps held at once, at some 24 bytes each", at_least(1));
  double target_mass =
      option(target_mass, "target-mass", 0.99,
             "share of the attention that the smallest budgets must keep", in(0.0, 1.0));
  Index min_visible =
      option(min_visible, "min-visible", 1,
             "rows with fewer visible keys are left out of nucleus sizes and smallest budgets",
             at_least(1));
  double nucleus =
      option(nucleus, "nucleus", 0.95,
             "with --draft: SpecAttn's p, and that of the floor p - sqrt(KL / 2)", in(0.0, 1.0));
  std::string layer_map =
      option(layer_map, "layer-map", "monotone",
             "with --draft: monotone (least divergence), identity, proportional, or 0/0/1/2");
};

/// Rows are the measured ones of every call, as in a sweep; heads are the measured ones, but of
/// what is compared with a draft: SpecAttn chooses for all heads of a layer together.
///
/// Selections, per layer, pair (in the order of summary["pairs"]) and query head
///   kept_mass, kept_mass_p05   mean and 5th percentile over rows of the kept attention
///   kept_keys                  mean number of kept keys
///
/// Maps, query block x page, means over rows and heads; NaN where no row sees the page
///   map_mass [layer, block, page]            attention that lies in the page; a block adds to 1
///   map_kept [layer, pair, block, page]      the kept part of it; a block adds to the kept mass
///   map_selected [layer, pair, block, page]  share of the visible keys that were selected
///
/// Nucleus sizes, per layer, query head and p
///   nucleus_mean, nucleus_p50, nucleus_p95   keys
///   nucleus_share                            mean of size / visible keys
///   nucleus_counts [..., size_bin]           rows by size, bin i = [2^i, 2^(i + 1))
///
/// Smallest budgets for target_mass
///   budget_mean, budget_p95, budget_max [layer, q_head]    smallest k of a row's oracle top-k
///   layer_budget_mean, ..._p95, ..._max [layer]            the same over rows and heads
///   layer_budget_shared [layer]   smallest k whose mean mass over rows and heads is the target
///   topk_mass [layer, k]          mean mass of the oracle's k keys, k = 1, 2, 4, ...
///
/// With a draft trace (see analysis/kinds/pinsker_floor.hpp), per layer and verified row
///   pinsker_kl, pinsker_floor, tv_floor, nucleus_mass, specattn_mass, specattn_kept
///
/// The summary holds a row per layer, one per pair, and under "pinsker" the floors' summary or the
/// sentence why there is none.
///
/// Memory: the maps of one layer (of all layers for methods that pass context between layers), one
/// KV head's keys in f64, what replay_layers needs; nothing T x T. Throws ConfigError for options
/// out of range, maps of more than max_cells cells, unknown heads or layers, a method
/// that needs the missing draft; Interrupted on a stop.
nlohmann::ordered_json analyze_coverage(const TraceSource& trace, const TraceSource* draft,
                                        const CoverageOptions& options, const AnalysisRun& run);

}  // namespace kvscope
