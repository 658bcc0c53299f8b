// What the formulas of Selector::cost count in: half-precision elements, as the papers do.
#pragma once

namespace kvscope {

/// Bytes of one stored key or value element (b in the formulas): fp16.
inline constexpr double kBytesPerElement = 2.0;

/// Bytes of one attention probability that is kept for voting: f32.
inline constexpr double kBytesPerProb = 4.0;

}  // namespace kvscope
