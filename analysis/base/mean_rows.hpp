// Attention rows averaged over a layer's heads: one probability vector per layer and query,
// whatever the head count.
#pragma once

#include <span>

#include "analysis/base/analysis.hpp"

namespace kvscope {

/// Writes the head mean of the exact probabilities of every recorded query head to out[i][0 ..
/// positions[i]], computed from q and k in f64; keys outside a sliding window get 0. out:
/// [positions.size(), >= last position + 1].
void head_mean_rows(const TraceSource& trace, Index layer, std::span<const Index> positions,
                    ScoreRowLoop& loop, TensorView<double> out);

/// Leaves out key 0 and renormalises; a row with nothing else becomes all zero.
void drop_first_key(std::span<double> row);

}  // namespace kvscope
