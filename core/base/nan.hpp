// The number that means "no value" in tables, figures and arrays.
#pragma once

#include <limits>

namespace kvscope {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr float kNanF = std::numeric_limits<float>::quiet_NaN();

}  // namespace kvscope
