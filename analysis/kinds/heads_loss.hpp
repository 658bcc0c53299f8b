// What each query head loses under sparse methods at one budget: a replay, read head by head.
#pragma once

#include <string>
#include <vector>

#include "analysis/kinds/heads.hpp"

namespace kvscope {

struct HeadLosses {
  std::vector<ReplayPair> pairs;
  std::vector<std::string> skipped;  // sentences: methods left out, and why
  /// [layers, heads, pairs] of the selected part; NaN in a layer that stays dense.
  std::vector<double> lost;
  std::size_t n_heads = 0;

  double at(std::size_t layer, std::size_t head, std::size_t pair) const {
    return lost[(layer * n_heads + head) * pairs.size() + pair];
  }
};

/// Replays the methods of `options` over the layers and heads of `part`; no pairs if it names none.
/// Throws what replay_layers throws.
HeadLosses measure_head_losses(const TraceSource& trace, const TraceInfo& part,
                               const HeadsOptions& options, ThreadPool& pool,
                               const ProgressFn& progress, const std::stop_token& stop);

}  // namespace kvscope
