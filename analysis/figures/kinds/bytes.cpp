// Quality against measured traffic: budgets of different methods mean different bytes.
#include "analysis/figures/sweep_curves.hpp"

namespace kvscope {

FigureKind figure_bytes() {
  FigureKind kind;
  kind.name = "bytes";
  kind.shows = "attention mass, recall and output error of every method against the bytes it reads";
  kind.needs = "the table of a sweep (.h5, .csv or .json)";
  kind.command =
      "kvscope sweep trace.h5 --selector quoka,quest,streamingllm,oracle-topk --budget 64,128,256 "
      "--out sweep.h5";
  kind.kinds = {"sweep|table"};
  kind.options = {"metric", "selector", "layers", "heads", "phase", "band"};
  kind.make = [](const FigureInput& input) {
    plot::Figure figure =
        figures::sweep_curves(rows_of(*input.results[0]), input.options, figures::Along::bytes,
                              "mass,recall10,output_error_rel");
    figure.caption.emplace_back(
        "Bytes of a call: what scoring reads, and the keys and values that are loaded, divided "
        "among the "
        "query "
        "heads of a group.");
    return figure;
  };
  return kind;
}

}  // namespace kvscope
