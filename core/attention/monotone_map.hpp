// SpecAttn's map from verifier layers to draft layers: how it is written, the cheapest
// non-decreasing one, and the unconstrained one.
#pragma once

#include <span>
#include <string>
#include <string_view>
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

/// "0/0/1/2": the draft layer of each verifier layer, as specattn's layer-map takes it.
std::string layer_map_text(std::span<const Index> draft_of);

/// A layer map as people write it: as above, "identity", or "proportional" (layer j of n_ver to
/// floor(j n_draft / n_ver)). Draft layers are counted among those whose rows there are.
class DraftMap {
 public:
  /// Throws ConfigError for anything else; `also` names what the asker takes
  /// besides ("monotone, ").
  explicit DraftMap(std::string_view text, std::string_view also = "");

  /// Throws ConfigError where the map names no such verifier layer or no such draft layer.
  Index draft_of(Index layer, Index n_ver, Index n_draft) const;

 private:
  bool is_proportional_ = false;
  std::vector<Index> draft_of_;  // empty for the maps with a name
};

}  // namespace kvscope
