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
  std::string budget;  // as text: oracles are compared with methods of the same
  double value = 0.0;  // accuracy, perplexity
  double kept = 0.0;   // keys per query, measured; NaN: not recorded
};

/// Adds to a caption why methods lie beyond oracles of their budget in a closed loop: more keys, or
/// that an oracle ranks keys by weight and nothing else. Nothing where none does.
void say_beyond_oracles(const std::vector<LiveResult>& all, bool is_better_low,
                        std::vector<std::string>& caption);

}  // namespace kvscope::figures
