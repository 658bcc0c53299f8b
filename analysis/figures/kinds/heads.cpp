// All heads at their place in the model.
#include "analysis/figures/head_atlas.hpp"

namespace kvscope {

FigureKind figure_heads() {
  return figures::atlas_kind(
      "heads", "the atlas of heads: a small attention map and a number of every layer and head",
      figures::AtlasOrder::as_in_model);
}

}  // namespace kvscope
