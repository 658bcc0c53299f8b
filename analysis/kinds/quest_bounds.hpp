// Quest's page bounds on recorded decode steps: the selector is run on each of them; how far the
// box of a page overestimates its best key, and what the selection by that bound keeps, in both of
// the published programs' readings of the budget.
#pragma once

#include "analysis/base/analysis.hpp"
#include "core/base/fields.hpp"
#include "core/base/progress.hpp"

namespace kvscope {

/// How the query heads of a KV group share a page selection.
enum class GroupShared {
  none,  // each query head selects for itself (the published evaluation)
  max,   // one selection per KV head, by the largest bound in the group
  mean,  // one selection per KV head, by the mean bound in the group
};

/// Which positions are taken as decode steps.
enum class StepSource {
  automatic,  // decoded positions if the trace has any, else prompt positions
  decode,
  prompt,
};

struct QuestOptions {
  Index page_size = option(page_size, "page-size", 16, "tokens per page", in(1, 1 << 20));
  Index budget = option(budget, "budget", 1024,
                        "tokens kept per step; whole pages, the forced last page included",
                        in(1, 1'000'000'000));
  Index steps =
      option(steps, "steps", 64, "decode steps looked at, evenly spaced; all if there are no more",
             at_least(1));
  StepSource step_source = option(
      step_source, "step-source", StepSource::automatic,
      "positions taken as steps: automatic (decoded ones if there are any), decode or prompt");
  GroupShared group_shared = option(
      group_shared, "group-shared", GroupShared::none,
      "pages per query head (none), or one set per KV head by the max or mean bound of its heads");
  Index dense_layers = option(dense_layers, "dense-layers", 2,
                              "first layers that stay dense: left out of the totals", at_least(0));
  bool store_pages =
      option(store_pages, "store-pages", true, "keep the per-page arrays in the result");
  bool operator==(const QuestOptions&) const = default;
};

/// Arrays, with the steps' positions in `step_pos`; s stands for eval and kernel.
///
/// [layer, q_head, step]
///   gap_mean, gap_best   logits by which the bound exceeds the true maximum: page mean, best page
///   rank_correlation     Spearman over the pages, bound against true maximum
///   best_rank            place of the truly best page by the bound; 0 is first
///   violations           pages whose bound is below their maximum by more than rounding
///   s/pages, s/loaded    pages and tokens kept
///   s/mass, s/recall     attention on them; share of the ten heaviest keys among them
///   s/best_kept          1 if the truly best page is among them
///
/// [layer, kv_head, step]
///   s/union_loaded       tokens loaded for all query heads of the KV head
///
/// [layer, q_head, step, page], with store_pages
///   bound, true_max      unscaled q.k; NaN for pages without a visible key
///   violated             1 where the bound is below the maximum by more than rounding
///   s/selected           0 or 1
///
/// Arrays cover every layer as if it were sparse; the summary's totals leave out the dense layers.
/// Throws ConfigError for options out of range, a trace without all q and k, or without a step to
/// look at; Interrupted on a stop.
nlohmann::ordered_json analyze_quest(const TraceSource& trace, const QuestOptions& options,
                                     const AnalysisRun& run);

}  // namespace kvscope
