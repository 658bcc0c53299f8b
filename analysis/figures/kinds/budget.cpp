// Quality against budget: all methods of a sweep, with bands, below the oracle's ceiling.
#include "analysis/figures/sweep_curves.hpp"

namespace kvscope {

FigureKind figure_budget() {
  FigureKind kind;
  kind.name = "budget";
  kind.shows = "attention mass, recall and output error of every method against its budget";
  kind.needs = "the table of a sweep (.h5, .csv or .json)";
  kind.command =
      "kvscope sweep trace.h5 --selector quoka,quest,streamingllm,oracle-topk --budget 64,128,256 "
      "--out sweep.h5";
  kind.kinds = {"sweep|table"};
  kind.options = {"metric", "selector", "layers", "heads", "phase", "band"};
  kind.make = [](const FigureInput& input) {
    return figures::sweep_curves(rows_of(*input.results[0]), input.options, figures::Along::budget,
                                 "mass,recall10,output_error_rel");
  };
  return kind;
}

}  // namespace kvscope
