// Overlap: how many of their keys two methods share, how much of the attention lies in what both
// keep, and who keeps what the others drop. Row sharing: how much the rows of a call share their
// keys under one method; a kernel that takes them together reads what any of them keeps.
//
// Keys are those before the call: its own keys, which nearly every method keeps, count nowhere.
// Couples are two methods at one budget and, where it has three or more, each of them and all the
// others together; methods without budgets take part at every budget. All layers choose, also those
// that a method leaves dense by default. All numbers are means over the measured rows that see a
// key before their call.
#pragma once

#include <string>

#include "analysis/base/analysis.hpp"
#include "analysis/base/replay_pairs.hpp"
#include "analysis/base/trace_selection.hpp"
#include "core/base/fields.hpp"
#include "core/base/progress.hpp"

namespace kvscope {

struct OverlapOptions : ReplayedCalls {
  using SharedOptions = ReplayedCalls;
  TraceSelection selection;
  std::string selector = option(selector, "selector", "quoka,sparq,snapkv,streamingllm",
                                "methods that are compared, as a sweep names them");
  std::string budget =
      option(budget, "budget", "256", "budgets, as 64,256 or ratio=0.1; a number is tokens");
};

/// Arrays [layer, q_head, couple], in the order of summary["couples"]:
///   jaccard       keys that both keep / keys that one of them keeps; NaN where neither keeps one
///   shared_mass   attention on keys that both keep
///   first_mass    attention on keys that the first keeps and the second drops; second_mass: the
///                 reverse
/// NaN in layers with a window, which stay dense. The summary has their means by layer and by
/// couple. Throws ConfigError for fewer than two methods that share a budget, more than 64 pairs of
/// method and budget, and what plan_pairs and replay_layers refuse; Interrupted on a stop. The same
/// bits for any number of threads.
nlohmann::ordered_json analyze_overlap(const TraceSource& trace, const OverlapOptions& options,
                                       const AnalysisRun& run);

struct RowSharingOptions {
  TraceSelection selection;
  std::string selector = option(selector, "selector", "oracle-topk,twilight,vattention,quest",
                                "methods, as a sweep names them");
  std::string budget = option(budget, "budget", "256,p=0.9", "budgets; a number is tokens");
  Phase phase = option(phase, "phase", Phase::verify, "which calls, all rows of which count");
  Index drafts = option(drafts, "drafts", 4, "verify: tokens verified at once", at_least(1));
  Index chunk = option(chunk, "chunk", 128, "B_CP: queries per prefill call", at_least(1));
  Index steps = option(steps, "steps", 16, "decode and verify: calls, evenly spaced", at_least(1));
  bool operator==(const RowSharingOptions&) const = default;
};

/// Arrays [layer, q_head, pair], in the order of summary["pairs"], means over the calls in which
/// some row keeps a key: row_keys and call_keys, the keys that a row and that any row keeps;
/// row_share, their quotient; jaccard, keys that every row keeps / keys that any row keeps. NaN
/// where a method is dense. Throws what plan_pairs and replay_layers refuse; Interrupted on a stop.
nlohmann::ordered_json analyze_row_sharing(const TraceSource& trace,
                                           const RowSharingOptions& options,
                                           const AnalysisRun& run);

}  // namespace kvscope
