// Quality against measured traffic: budgets of different methods mean different bytes.
#include "analysis/figures/sweep_curves.hpp"

namespace kvscope {

FigureKind figure_bytes() {
  FigureKind kind = figures::sweep_kind(
      "bytes",
      "attention mass, recall and output error of every method against the bytes it reads");
  kind.make = [](const FigureInput& input) {
    plot::Figure figure = figures::sweep_curves(
        rows_of(*input.results[0]), input.options,
        figures::along_of(input.options, figures::Along::bytes), "mass,recall10,output_error_rel");
    figure.caption.emplace_back(
        "Bytes of a call: what scoring reads, and the keys and values that "
        "are loaded; of a head, its share of its group's.");
    return figure;
  };
  return kind;
}

}  // namespace kvscope
