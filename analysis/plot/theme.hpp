// How figures look: sizes, line widths and colours, for a ground and a venue.
#pragma once

#include <vector>

#include "analysis/plot/canvas.hpp"
#include "analysis/plot/figure.hpp"
#include "core/base/fields.hpp"

namespace kvscope::plot {

enum class Ground { light, dark };

/// Where a figure will be printed: text widths and the size of its letters.
enum class Venue { acl, icml, neurips, iclr, ieee, slide };

/// How a series or role is drawn. Colour, marker and dash differ together, so that grey print and
/// colour-blind readers can tell series apart.
struct SeriesStyle {
  Colour colour;
  MarkerShape marker = MarkerShape::circle;
  Dash dash = Dash::solid;
};

struct Theme {
  double column_width = 234.0;  // points
  double full_width = 486.0;
  double label_size = 8.0;  // axis labels, legend; points per em
  double tick_size = 7.0;
  double title_size = 8.0;
  double line_width = 1.2;
  double rule_width = 0.6;  // frames, ticks
  double grid_width = 0.4;
  double marker_radius = 1.9;
  double tick_length = 2.5;
  double margin = 2.0;  // around everything
  double gap = 10.0;    // between panels

  Colour ground;
  Colour ink;    // frames and words
  Colour muted;  // secondary words
  Colour grid;
  Colour masked;   // cells without a value
  Colour neutral;  // marks that are context
  Colour highlight;
  double band_alpha = 0.18;
  std::vector<Colour> series;  // Okabe and Ito's, the ones that print well first

  /// Where points begin on the sequential map: its dark end is hard to see on a dark ground.
  double first_of_points = 0.0;

  /// The part of the sequential map that what has an order takes: a contrast of 3 with the ground.
  Range ordered;

  SeriesStyle style_of(const Tone& tone) const;
  /// The colour of a point, at `unit` in [0, 1] of its axis.
  Colour point_colour(ColourMap map, double unit) const;
};

/// The paper's column widths: ACL 3.03 and 6.30 in, ICML 3.25 and 6.75, NeurIPS and ICLR 5.5 (one
/// column), IEEE 3.5 and 7.16; letters of 7 to 8 pt. A slide is 10 in wide with letters of 16 pt.
Theme make_theme(Venue venue, Ground ground);

}  // namespace kvscope::plot
