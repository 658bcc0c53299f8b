// Tiles of scores beside the running maximum, as skip-softmax judges them, and the scale of its
// threshold that skips a stated share of them.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/selectors/owners.hpp"

namespace kvscope {

/// How far each tile of block_k keys (aligned to position 0, from the first that a row sees) lies
/// below the running maximum: the largest over the rows of (the tile's largest score - the largest
/// so far, the tile's own included), for each head of a group. A tile is skipped if that is below
/// log(lambda); -infinity: no row sees an alive key of it. rows: of the call. [heads][n_tiles]
std::vector<std::vector<double>> tile_margins(const SelectCall& call, const ListHeads& group,
                                              TokenRange rows, Index block_k, KeyDots& dots);

/// scale = a exp(b sparsity).
struct SkipScale {
  double a = 0.0;
  double b = 0.0;
  double scale(double sparsity) const;
};

/// One measurement: with lambda = scale / T a share `sparsity` of the tiles was skipped.
struct SkipPoint {
  double scale = 0.0;
  double sparsity = 0.0;
};

/// The least squares of the scale, a >= 0 and 0 <= b <= 20, over the points with a sparsity from .1
/// to .9 (Model-Optimizer's DynamicThresholdCalibrator); empty with fewer than three of these.
std::optional<SkipScale> fit_skip_scale(std::span<const SkipPoint> points);

}  // namespace kvscope
