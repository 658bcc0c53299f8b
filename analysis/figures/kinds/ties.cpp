// The census of ties: rows whose cut lies among equal scores, and keys that the order of these
// decides.
#include "analysis/figures/kit.hpp"

namespace kvscope {

namespace {

/// "QuoKA, pages of 16".
std::string name_of(const Json& row) {
  const double number = figures::number_at(row, "page");
  const Index page = number >= 1.0 && number < 1e9 ? static_cast<Index>(number) : 1;
  return fmt::format("{}, {}", figures::method_label(figures::text_at(row, "selector", "?")),
                     page == 1 ? std::string("tokens") : fmt::format("pages of {}", page));
}

plot::Figure make_ties(const FigureInput& input) {
  const auto share = [](double) { return plot::Range{-0.02, 1.02}; };
  return figures::dot_rows(
      {.name = name_of,
       .panels =
           {{"tie_share", "Rows with a tie at the cut", plot::TickFormat::percent,
             plot::ScaleKind::linear, share},
            {"changed", "Keys changed per row", plot::TickFormat::number, plot::ScaleKind::linear,
             [](double largest) {
               return plot::Range{-0.02 * std::max(largest, 1.0), 1.08 * std::max(largest, 1.0)};
             }},
            {"close_share", "Rows, gap below a step", plot::TickFormat::percent,
             plot::ScaleKind::linear, share}},
       .by = "scores",
       .marks = {{"f32", 0, "", "f32"}, {"bf16", 1, "", "bf16"}, {"fp8 (e4m3)", 2, "", "fp8"}},
       .first = "",
       .caption =
           [](const auto& config) {
             return figures::text_at(config, "budget", "?") +
                    ": share of the rows (list owners at decode steps) whose k-th and next score "
                    "are equal when scores are stored in a type, keys that differ between the two "
                    "extreme orders of equal scores, and share of the rows whose exact gap there "
                    "is below one rounding step of the type. fp8 has one power of two as scale "
                    "per row.";
           }},
      input);
}

}  // namespace

FigureKind figure_ties() {
  return {
      .name = "ties",
      .shows =
          "how often the cut of a top-k lies among equal scores, by number type and size of pages",
      .needs = "a census of ties",
      .command = "kvscope analyze ties trace.h5 --out ties.h5",
      .kinds = {"ties"},
      .options = {"metric"},
      .make = make_ties,
  };
}

}  // namespace kvscope
