// The heads in the order of one of their numbers.
#include "analysis/figures/head_atlas.hpp"

namespace kvscope {

FigureKind figure_heads_sorted() {
  return {
      .name = "heads-sorted",
      .shows = "the atlas of heads by one number, the largest first",
      .needs = "an analysis of heads",
      .command = "kvscope analyze heads trace.h5 --out heads.h5",
      .kinds = {"heads"},
      .options = {"metric", "selector", "layers", "heads"},
      .make =
          [](const FigureInput& input) {
            return figures::head_atlas(input, figures::AtlasOrder::by_number);
          },
  };
}

}  // namespace kvscope
