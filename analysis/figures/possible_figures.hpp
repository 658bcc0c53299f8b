// Which figures a result can be drawn as, with others that are at hand: what the window's results
// panel offers and an HTML page chooses from.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "analysis/figures/figure_kind.hpp"

namespace kvscope {

using ResultPtr = std::shared_ptr<const ResultView>;

/// A figure that can be made with the result that is looked at.
struct PossibleFigure {
  FigureKind kind;
  /// For each entry of kind.kinds: the open results that fit, the one looked at first.
  std::vector<std::vector<ResultPtr>> candidates;
  /// One per needed entry, and per entry that may be left out if there is one.
  std::vector<ResultPtr> chosen;
  /// What is missing, as a sentence with the command that makes it; empty if it can be drawn.
  std::string missing;
};

/// Kinds that take `looked_at` in one of their places, in the order of figure_kinds().
std::vector<PossibleFigure> possible_figures(const std::vector<ResultPtr>& open,
                                             const ResultPtr& looked_at);

/// The first that lacks nothing: what is shown before somebody chooses. Null if there is none.
const PossibleFigure* first_drawable(const std::vector<PossibleFigure>& figures);

}  // namespace kvscope
