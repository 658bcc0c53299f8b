// Scores as an engine stores them before it ranks keys: in f32, bf16 or fp8, rounded to nearest
// even.
#pragma once

#include <cmath>
#include <span>

#include "core/base/fields.hpp"

namespace kvscope {

/// f64 leaves scores as they were made. fp8 is e4m3 as accelerators have it: 3 bits of mantissa, no
/// infinity, largest 448.
enum class ScoreType { f64, f32, bf16, fp8 };

/// The nearest number of the type, ties to the even one; numbers beyond the largest become it
/// (saturation). NaN and the infinities stay: -infinity means "not a candidate".
double rounded_score(double score, ScoreType type);

/// Distance between the type's neighbours around |score|, which rounding can move a score by half
/// of; 0 for f64.
double rounding_step(double score, ScoreType type);

/// The factor that a row of scores is divided by before it is rounded: 1, except for fp8, where it
/// is the smallest power of two that brings the largest finite magnitude of the row to at most 448
/// (a ue8m0 scale). 1 for rows of zeros.
double row_scale(std::span<const double> scores, ScoreType type);

/// Rounds a row in place: each score times 1 / row_scale is rounded and scaled back.
void round_scores(std::span<double> scores, ScoreType type);

}  // namespace kvscope
