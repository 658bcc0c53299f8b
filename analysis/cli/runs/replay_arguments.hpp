// The options of commands that replay selectors on a trace: which methods, which budgets, which
// calls, rows, layers and heads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/options/options.hpp"
#include "core/sim/replay.hpp"

namespace kvscope::cli {

class ReplayArguments {
 public:
  /// --selector to --dense-layers.
  void declare(OptionSet& options);

  bool has_selectors() const { return !selectors_.empty(); }
  /// The lists of --selector as given.
  const std::vector<std::string>& selector_lists() const { return selectors_; }
  bool has_budgets() const { return !budgets_.empty(); }
  Phase phase() const { return phase_; }
  /// "quest,quoka:n-queries=8,pairing=rank" as {quest, quoka:n-queries=8,pairing=rank}. Throws
  /// UsageError.
  std::vector<MethodSpec> selectors() const;
  /// "tokens=64,128,ratio=0.25" as three budgets: a bare number is of the kind before it. Throws
  /// UsageError.
  std::vector<Budget> budgets() const;
  /// Calls, rows, heads, dense layers. Throws UsageError.
  ReplayOptions replay() const;
  /// Empty = all. Throws UsageError.
  std::vector<Index> layers() const;

 private:
  std::vector<std::string> selectors_;
  std::vector<std::string> budgets_;
  Phase phase_ = Phase::prefill;
  CallPlan calls_;
  std::optional<std::string> rows_per_chunk_;
  std::optional<std::string> layers_;
  std::optional<std::string> heads_;
  std::optional<Index> dense_layers_;
};

}  // namespace kvscope::cli
