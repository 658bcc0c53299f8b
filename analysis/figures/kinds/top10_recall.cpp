// Top-10 recall by measured keys in decode steps: Quest's figure 4.
#include "analysis/figures/sweep_curves.hpp"

namespace kvscope {

FigureKind figure_top10_recall() {
  return {
      .name = "top10-recall",
      .shows =
          "share of the ten heaviest keys that each method keeps, by keys kept (Quest, figure 4)",
      .needs = "the table of a sweep, usually of decode steps",
      .command =
          "kvscope sweep trace.h5 --phase decode --selector quest,h2o,tova --budget "
          "64,256,1024 --out decode.h5",
      .kinds = {"sweep|table"},
      .options = {"selector", "layers", "heads", "phase", "x", "band"},
      .make =
          [](const FigureInput& input) {
            plot::Figure figure = figures::sweep_curves(
                rows_of(*input.results[0]), input.options,
                figures::along_of(input.options, figures::Along::keys), "recall10");
            figure.panels[0].y.range = plot::Range{0.0, 1.03};
            figure.panels[0].aspect = 0.6;
            return figure;
          },
  };
}

}  // namespace kvscope
