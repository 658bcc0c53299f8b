// Quality against measured keys (or the nominal budget): all methods of a sweep, with bands, below
// the oracle's ceiling.
#include "analysis/figures/sweep_curves.hpp"

namespace kvscope {

FigureKind figure_budget() {
  FigureKind kind = figures::sweep_kind(
      "budget",
      "attention mass, recall and output error of every method against the keys it keeps");
  kind.make = [](const FigureInput& input) {
    return figures::sweep_curves(rows_of(*input.results[0]), input.options,
                                 figures::along_of(input.options, figures::Along::keys),
                                 "mass,recall10,output_error_rel");
  };
  return kind;
}

}  // namespace kvscope
