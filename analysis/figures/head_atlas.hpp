// The head atlas: a small attention map of every layer and query head, with a number of each.
#pragma once

#include "analysis/figures/figure_kind.hpp"

namespace kvscope::figures {

enum class AtlasOrder {
  as_in_model,  // heads to the right, layers upwards
  by_number,    // the largest first, at most 64
};

/// Of a result of `kvscope analyze heads`; options: metric, selector, layers, heads.
plot::Figure head_atlas(const FigureInput& input, AtlasOrder order);

}  // namespace kvscope::figures
