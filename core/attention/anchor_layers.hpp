// Which layers choose keys for the layers after them (Kascade, arXiv 2512.16391): the division into
// segments that keeps most.
#pragma once

#include <vector>

#include "core/tensor/tensor.hpp"

namespace kvscope {

/// The anchors and what they keep together.
struct AnchorLayers {
  std::vector<Index> anchors;  // ascending, the first is 0
  double score = 0.0;
};

/// The `n_anchors` layers (at most n, at least 1) of the largest sum over all layers of
/// similarity(anchor, layer), the anchor of a layer being the last one at or before it. similarity:
/// [n, n], element (a, b) for a <= b: how well the keys of layer a serve layer b. By dynamic
/// programming, O(n^2 n_anchors); equal sums take the lowest layers. Throws ShapeError unless the
/// matrix is square and not empty.
AnchorLayers best_anchor_layers(TensorView<const double> similarity, Index n_anchors);

}  // namespace kvscope
