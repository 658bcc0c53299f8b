// SpecAttn's guarantee beside what it keeps: the floor that Pinsker's inequality puts under the
// verifier's attention on the draft's nucleus.
//
// For one query row let a be the verifier layer's attention, b that of the draft layer it is mapped
// to (both averaged over heads, over the same tokens, normalised over the keys) and N the nucleus
// of b, so b(N) >= p. Total variation bounds the difference on any set, and Pinsker bounds it by
// the divergence:
//   a(N) >= p - TV(a, b) >= p - sqrt(KL(a || b) / 2).
// SpecAttn (arXiv 2510.27641) attends to a superset of N (union over the drafted rows, closed over
// blocks), one set for all heads; so its kept mass has the same floor. Heads count by what they
// give to keys, in a and in the kept mass alike: without attention sinks that is their plain mean.
//
// b is the draft's row at the verified position. The last position of a verification has none,
// since the draft never ran its last token: there is no floor, and its fields are NaN.
#pragma once

#include <span>
#include <stop_token>
#include <vector>

#include "analysis/kinds/coverage.hpp"

namespace kvscope {

/// One verifier layer. Per row, NaN in the first four where there is no draft row:
struct PinskerLayer {
  Index layer = 0;
  Index draft_layer = 0;
  std::vector<double> kl;             // KL(a || b) in nats; infinite where b has a zero under a
  std::vector<double> floor;          // max(0, p - sqrt(KL / 2))
  std::vector<double> tv_floor;       // max(0, p - TV): what Pinsker would be without its slack
  std::vector<double> nucleus_mass;   // a(N)
  std::vector<double> specattn_mass;  // kept by the replayed selector, share of what all heads
                                      // give to keys
  std::vector<double> specattn_kept;  // its kept share of the row's visible keys, mean over heads
  Index violations = 0;               // rows with a(N) or the kept mass below the floor
};

struct PinskerResult {
  std::vector<Index> row_pos;  // verified positions
  std::vector<PinskerLayer> layers;
};

/// Kept mass may be this much below a floor before it counts as violated: the selector sees the
/// draft's rows in f32.
inline constexpr double kFloorSlack = 1e-6;

/// Computes rows, floors and the replay of specattn over these layers, none of them left dense.
/// With layer_map "monotone" the map of least divergence comes first (analyze_layer_map). Throws
/// ConfigError for a draft over other tokens, a map that does not fit; Interrupted on a stop.
PinskerResult pinsker_floors(const TraceSource& verifier, const TraceSource& draft,
                             const CoverageOptions& options, std::span<const Index> layers,
                             ThreadPool& pool, const ProgressFn& progress, std::stop_token stop);

}  // namespace kvscope
