// Wall-clock times of pieces of work, for the commands that measure speed.
#pragma once

#include <chrono>
#include <span>

#include "analysis/base/statistics.hpp"

namespace kvscope::cli {

/// Seconds that `work()` takes.
template <class Work>
double seconds_of(Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The middle of the values; NaN if there are none.
inline double median(std::span<const double> values) {
  return quantile(values, 0.5);
}

}  // namespace kvscope::cli
