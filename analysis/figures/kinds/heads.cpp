// All heads at their place in the model.
#include "analysis/figures/head_atlas.hpp"

namespace kvscope {

FigureKind figure_heads() {
  return {
      .name = "heads",
      .shows = "the atlas of heads: a small attention map and a number of every layer and head",
      .needs = "an analysis of heads",
      .command = "kvscope analyze heads trace.h5 --out heads.h5",
      .kinds = {"heads"},
      .options = {"metric", "selector", "layers", "heads"},
      .make =
          [](const FigureInput& input) {
            return figures::head_atlas(input, figures::AtlasOrder::as_in_model);
          },
  };
}

}  // namespace kvscope
