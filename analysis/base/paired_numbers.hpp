// The mean of differences between two things measured on the same units (prompts, blocks of tokens,
// heads): far surer than the two means where units are hard for both.
#pragma once

#include <span>

#include "analysis/base/statistics.hpp"

namespace kvscope {

/// True if each is -1, 0 or 1.
bool are_of_right_and_wrong(std::span<const double> differences);

/// Standard deviation of one unit's difference; at least 2 units. Where all are equal and
/// differences of right and wrong (-1, 0, 1), as if one unit and a half more had not been.
double paired_spread(std::span<const double> differences);

/// Of their mean, at `confidence` (0.95), at least 2 units: Tango's score interval (Statistics in
/// Medicine 17, 1998) where every difference is -1, 0 or 1, else Student's.
Interval paired_interval(std::span<const double> differences, double confidence);

}  // namespace kvscope
