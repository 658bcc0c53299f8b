// The heads in the order of one of their numbers.
#include "analysis/figures/head_atlas.hpp"

namespace kvscope {

FigureKind figure_heads_sorted() {
  return figures::atlas_kind("heads-sorted", "the atlas of heads by one number, the largest first",
                             figures::AtlasOrder::by_number);
}

}  // namespace kvscope
