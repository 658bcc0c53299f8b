// The sweep: traces x selectors x budgets x layers x heads in one table.
//
// Work is cut into items (one method at one budget in one layer of a trace; or in all layers, of
// methods that pass context between them). The table is made from their answers only
// (analysis/runs/store.hpp), hence the same bytes for any thread count, any interruption and any
// number of workers.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "analysis/base/replay_pairs.hpp"
#include "analysis/cost/hardware.hpp"
#include "analysis/runs/work.hpp"
#include "analysis/sweep/match.hpp"
#include "analysis/sweep/sweep_result.hpp"
#include "core/base/progress.hpp"
#include "core/sim/replay.hpp"
#include "core/trace/source.hpp"

namespace kvscope {

/// A trace that is opened when its turn comes.
struct SweepTrace {
  std::string name;  // as shown in the table
  std::function<std::unique_ptr<TraceSource>()> open;
  std::function<std::unique_ptr<TraceSource>()> open_draft;  // empty: no draft
};

struct SweepOptions {
  std::vector<MethodSpec> selectors;
  std::vector<Budget> budgets;
  /// Costs that every method's setting is turned to meet, over the measured rows of each trace;
  /// empty = `budgets` as they are. Not both.
  std::vector<MatchTarget> match;
  /// A match of keys or density gets methods `ceiling` and `oracle-topk` added, which split what a
  /// method loses (columns lost_choosing, lost_dividing).
  bool with_ceiling = false;
  /// Sentences that join SweepPlan::skipped: what the caller left out, and why.
  std::vector<std::string> left_out;
  std::vector<Index> layers;  // empty = all that are recorded
  ReplayOptions replay;
  Index n_resamples = 200;  // of the bootstrap
  Index seed = 0;
  /// Whose predicted times join the rows; empty: they are NaN.
  std::optional<HardwareProfile> hardware;
};

/// One item of work.
struct SweepItem : ReplayItem {
  std::size_t trace = 0;
};

/// What will be done, before anything is. Made from metadata only.
struct SweepPlan {
  std::vector<SweepTrace> traces;
  SweepOptions options;
  std::vector<ReplayPair> pairs;
  /// [pairs] what each is to meet: none without SweepOptions::match.
  std::vector<std::optional<MatchTarget>> targets;
  /// Sentences: combinations left out because the method is not defined for them.
  std::vector<std::string> skipped;
  std::vector<SweepItem> items;
  nlohmann::ordered_json config;  // everything that decides the numbers
  std::string config_hash;        // 16 hexadecimal digits
  std::vector<SweepTraceInfo> infos;
  std::vector<TraceInfo> described;  // [traces]
};

/// Opens every trace once. Throws ConfigError if nothing is left to do: no selector, budgets that
/// no method takes, layers or heads that were not recorded, a selector or trace given twice, a
/// missing draft.
SweepPlan plan_sweep(std::vector<SweepTrace> traces, SweepOptions options);

/// The table from the answers of all items (sweep_work.hpp); rows of those that failed are there
/// without numbers. Throws FormatError if the store holds something else.
SweepResult sweep_result(const SweepPlan& plan, const Work& work, const Store& store);

}  // namespace kvscope
