// Why methods lie beyond an oracle, as sentences for captions.
#pragma once

#include <string>
#include <vector>

#include "analysis/figures/sweep_cells.hpp"

namespace kvscope::figures {

/// Of a sweep's curves; the oracle is bound by the nominal budget, or by what was measured. Empty
/// where none does.
std::string why_beyond_oracle(const SweepCells& cells, const SweepMetric& metric, Along along);

/// A method of a closed loop, as a figure shows it beside an oracle.
struct LiveResult {
  std::string selector;
  double value = 0.0;  // accuracy, perplexity
  double kept = 0.0;   // keys per query, measured; NaN: not recorded
};

/// Why methods of the same budget lie beyond `oracle` in a closed loop, as a sentence for the
/// caption: more keys, or that an oracle ranks keys by weight and nothing else. Empty where none
/// does.
std::string why_beyond_live_oracle(const LiveResult& oracle, const std::vector<LiveResult>& others,
                                   bool is_better_low);

}  // namespace kvscope::figures
