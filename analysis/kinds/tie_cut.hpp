// Whether the cut of a top-k lies inside a set of equal scores, and what the order among these
// decides.
#pragma once

#include <span>

#include "core/tensor/tensor.hpp"

namespace kvscope {

/// The cut of one row. Units are what is ranked: keys or pages.
struct TieCut {
  bool has_cut = false;  // some candidate is left out, and some is kept
  bool has_tie = false;  // the last one in and the first one out have the same score
  Index tied = 0;        // units with the score at the cut; 1 without a tie
  /// Units in which two legal orders can differ: those that the lowest positions bring in and the
  /// highest do not.
  Index changed = 0;
  double kth = 0.0;  // the k-th score
  double gap = 0.0;  // and its distance to the next one; NaN without a cut
};

/// scores: -infinity and NaN are no candidates. k: units that are kept.
TieCut tie_cut(std::span<const double> scores, Index k);

}  // namespace kvscope
