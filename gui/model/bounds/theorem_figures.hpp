// What the Theorem B.1 panel draws and writes: a point per row against the line on which bound and
// cosine are equal.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/plot/figure.hpp"
#include "gui/model/bounds/theorem_view.hpp"

namespace kvscope::gui {

/// Which bounds are shown.
enum class TheoremPicture {
  one,        // the chosen one, large
  all,        // the four lower bounds beside each other
  main_text,  // the upper bounds on cos(M_Q, q)
};

/// What colours the points.
enum class TheoremColour { weight, position };

/// A figure whose points can be asked which row they are.
struct TheoremPlot {
  plot::Figure figure;
  std::vector<TheoremBound> bounds;                         // [panel]
  std::vector<std::vector<std::vector<std::size_t>>> rows;  // [panel][mark][point]
  std::optional<std::size_t> row_at(std::size_t panel, std::size_t mark, std::size_t point) const;
};

/// The bounds that a picture shows, in order.
std::vector<TheoremBound> bounds_of(TheoremPicture picture, TheoremBound chosen);

/// The bounds against the measured cosine, a panel each. Throws ConfigError if no row makes a
/// statement.
TheoremPlot theorem_plot(const TheoremRows& rows, const std::vector<TheoremBound>& bounds,
                         TheoremColour colour);

/// Adds a mark for one row to each panel of theorem_plot's figure; none where the row says nothing.
void mark_row(plot::Figure& figure, const TheoremRows& rows,
              const std::vector<TheoremBound>& bounds, std::size_t row);

/// One line per row: query, star, weight, log_odds, norm_eff, both cosines, each bound, and whether
/// it is violated.
std::string theorem_csv(const TheoremRows& rows);

}  // namespace kvscope::gui
