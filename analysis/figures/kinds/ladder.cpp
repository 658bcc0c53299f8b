// The serving ladder: every restriction on a line of its own, alone and together with those above
// it.
#include <fmt/format.h>

#include "analysis/figures/spec.hpp"
#include "analysis/figures/summary_rows.hpp"

namespace kvscope {

namespace {

plot::Figure make_ladder(const FigureInput& input) {
  return figures::dot_rows(
      {.name = [](const auto& row) { return figures::text_at(row, "rung", "?"); },
       .panels = {{"mass", "Kept attention", plot::TickFormat::percent, plot::ScaleKind::linear,
                   [](double) {
                     return plot::Range{0.0, 1.0};
                   }},
                  {"output_error", "Relative output error", plot::TickFormat::number,
                   plot::ScaleKind::linear,
                   [](double largest) {
                     return plot::Range{0.0, largest > 0.0 ? 1.08 * largest : 1.0};
                   }},
                  // a chunk divides them by its queries
                  {"bytes", "Read for one query", plot::TickFormat::bytes, plot::ScaleKind::log2,
                   nullptr}},
       .by = "",
       .marks = {{"with those above it", 1, "together_", "", true},
                 {"this restriction alone", 0, "", "", false}},
       .first = "as the method is",
       .aspect = 1.9,
       .aspect_alone = 1.5,
       .caption =
           [](const auto& config) {
             const std::string budget = figures::text_at(config, "budget");
             return fmt::format(
                 "{}{}: each restriction of an engine alone, and together with those "
                 "above it (of each kind the last one); means over layers, query "
                 "heads and the same queries. Bytes: scoring, and K and V of the "
                 "kept keys, for all heads of a layer; a chunk's are divided among "
                 "its queries, and its own keys are kept in addition to the budget.",
                 figures::text_at(config, "selector", "?"), budget.empty() ? "" : " " + budget);
           }},
      input);
}

}  // namespace

FigureKind figure_ladder() {
  return {
      .name = "ladder",
      .shows =
          "what each restriction of a serving engine costs a method: kept attention, output "
          "error, bytes",
      .needs = "a serving ladder",
      .command = "kvscope ladder trace.h5 --selector quest --budget 256 --out ladder.h5",
      .kinds = {"ladder"},
      .options = {"metric"},
      .make = make_ladder,
  };
}

}  // namespace kvscope
