// SpecAttn's map from verifier layers to draft layers: the cheapest non-decreasing one, and the
// unconstrained one.
#pragma once

#include <vector>

#include "core/tensor/tensor.hpp"

namespace kvscope {

/// draft_of[j] is the draft layer (row of the cost matrix) of verifier layer j (column); cost is
/// their sum.
struct LayerAssignment {
  std::vector<Index> draft_of;
  double cost = 0.0;
};

/// The non-decreasing map of least total cost; skipping and repeating draft layers is free. The
/// published recursion (its algorithm 3) takes its three moves from the previous column only, so it
/// is cost[i][j] + min over k <= i of the previous column; a running prefix minimum makes that
/// O(n_draft * n_ver). Equal costs take the smallest index. cost: [n_draft, n_ver], +inf allowed,
/// NaN refused; throws ShapeError if either extent is 0.
LayerAssignment monotone_layer_map(TensorView<const double> cost);

/// The cheapest row of each column by itself, smallest index among equals.
LayerAssignment unconstrained_layer_map(TensorView<const double> cost);

}  // namespace kvscope
