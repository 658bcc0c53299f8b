// Attention rows averaged over a layer's heads: one probability vector per layer and query,
// whatever the head count; and how far two of them are apart.
#pragma once

#include <span>
#include <stop_token>

#include "analysis/analysis.hpp"

namespace kvscope {

/// Writes the head mean of the exact probabilities of every recorded query head to out[i][0 ..
/// positions[i]], computed from q and k in f64; keys outside a sliding window get 0. out:
/// [positions.size(), >= last position + 1].
void head_mean_rows(const TraceSource& trace, Index layer, std::span<const Index> positions,
                    ScoreRowLoop& loop, TensorView<double> out);

/// Leaves out key 0 and renormalises; a row with nothing else becomes all zero.
void drop_first_key(std::span<double> row);

/// a' = (a + eps) / (1 + L eps) for each of the row's L entries.
void smooth_row(std::span<double> row, double eps);

/// KL(p || q) in nats, never below 0. Keys with p = 0 contribute nothing; q = 0 under p > 0 makes
/// it infinite. has_zeros: false promises that there are none, which is faster.
double row_divergence(std::span<const double> p, std::span<const double> log_p,
                      std::span<const double> log_q, bool has_zeros);

}  // namespace kvscope
