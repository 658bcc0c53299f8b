// Which (selector, budget) pairs a comparison replays: the combinations that make sense, and
// sentences about the others.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/fields.hpp"
#include "core/sim/replay.hpp"

namespace kvscope {

/// Which calls an analysis replays, among its options.
struct ReplayedCalls {
  Phase phase = option(phase, "phase", Phase::prefill, "which calls are replayed");
  Index chunk = option(chunk, "chunk", 128, "B_CP: queries per prefill call", at_least(1));
  Index steps =
      option(steps, "steps", 16, "decode and verify: calls measured, evenly spaced", at_least(1));
  Index rows_per_chunk = option(rows_per_chunk, "rows-per-chunk", 8,
                                "measured queries of a call, evenly spaced", at_least(1));

  /// A replay of these calls that measures these heads.
  ReplayOptions replay(const std::vector<Index>& q_heads) const;
};

struct PairPlan {
  std::vector<ReplayPair> pairs;
  std::vector<std::string> skipped;  // sentences: what was left out, and why
  std::vector<std::size_t> targets;  // [pairs] of a match: which cost each is to meet; else empty
};

/// Every selector that is defined for one of the phases with every budget that it takes; methods
/// without budgets once. What one phase alone leaves out is named as well. without_draft: the name
/// of a trace that comes without a draft trace, empty if all have one. n_targets: costs to match,
/// which stand in the place of budgets (methods without a setting meet the first). Throws
/// ConfigError, beginning with `analysis`, for a selector or budget given twice, a method that
/// needs the missing draft, budgets beside costs, or if nothing is left.
PairPlan plan_pairs(const std::vector<MethodSpec>& selectors, const std::vector<Budget>& budgets,
                    const std::vector<Phase>& phases,
                    const std::optional<std::string>& without_draft, std::string_view analysis,
                    std::size_t n_targets = 0);

/// Leading layers that the method leaves dense, by its own text or, where that leaves it open, by
/// `otherwise`.
Index dense_layers_of(MethodSpec method, Index otherwise);

/// Calls in which every method of the pairs chooses as often as over all of them.
CallPlan whole_periods(CallPlan calls, const std::vector<ReplayPair>& pairs);

/// A pair in one layer, or in all for methods that link them.
struct ReplayItem {
  std::vector<Index> layers;
  std::size_t pair = 0;   // by index
  std::size_t group = 0;  // the first item of those that are replayed together
};

/// Pairs layer after layer; behind them those that link layers.
std::vector<ReplayItem> replay_items(const std::vector<Index>& layers,
                                     const std::vector<ReplayPair>& pairs);

/// How many items the group has that begins at one.
template <class Item>
std::size_t n_in_group(const std::vector<Item>& items, std::size_t first) {
  std::size_t end = first;
  while (end < items.size() && items[end].group == first) ++end;
  return end - first;
}

/// "quest tokens=64", "full".
std::string pair_label(const ReplayPair& pair);

/// The selector's text in such a label.
std::string_view selector_of_label(std::string_view label);

/// Throws ConfigError if an item comes twice.
template <class T>
void require_unique(const std::vector<T>& items, std::string_view what, std::string_view analysis) {
  std::set<T> seen;
  for (const T& item : items) {
    if (!seen.insert(item).second)
      throw ConfigError("{}: {} {} is given twice", analysis, what, item);
  }
}

}  // namespace kvscope
