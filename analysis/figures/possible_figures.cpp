#include "analysis/figures/possible_figures.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvscope {

std::vector<PossibleFigure> possible_figures(const std::vector<ResultPtr>& open,
                                             const ResultPtr& looked_at) {
  std::vector<PossibleFigure> possible;
  if (!looked_at) return possible;
  for (FigureKind& kind : figure_kinds()) {
    const bool fits = std::ranges::any_of(kind.kinds, [&](const std::string& wanted) {
      return accepts_kind(wanted, looked_at->info().kind);
    });
    if (!fits) continue;
    PossibleFigure figure;
    for (const std::string& wanted : kind.kinds) {
      std::vector<ResultPtr> candidates;
      if (accepts_kind(wanted, looked_at->info().kind)) candidates.push_back(looked_at);
      for (const ResultPtr& result : open) {
        const bool is_other = result != looked_at && accepts_kind(wanted, result->info().kind);
        if (is_other) candidates.push_back(result);
      }
      if (!candidates.empty()) {
        figure.chosen.push_back(candidates.front());
      } else if (!wanted.ends_with('?')) {
        figure.missing =
            fmt::format("It needs {}: open one as well. {} makes it.", kind.needs, kind.command);
      }
      figure.candidates.push_back(std::move(candidates));
    }
    figure.kind = std::move(kind);
    possible.push_back(std::move(figure));
  }
  return possible;
}

const PossibleFigure* first_drawable(const std::vector<PossibleFigure>& figures) {
  const auto drawable =
      std::ranges::find_if(figures, [](const PossibleFigure& f) { return f.missing.empty(); });
  return drawable == figures.end() ? nullptr : &*drawable;
}

}  // namespace kvscope
