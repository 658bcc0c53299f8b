// Wall-clock times of pieces of work, for the commands that measure speed.
#pragma once

#include <span>

#include "analysis/base/statistics.hpp"
#include "core/base/stopwatch.hpp"

namespace kvscope::cli {

/// Seconds that `work()` takes.
template <class Work>
double seconds_of(Work&& work) {
  const Stopwatch watch;
  work();
  return watch.seconds();
}

/// The middle of the values; NaN if there are none.
inline double median(std::span<const double> values) {
  return quantile(values, 0.5);
}

}  // namespace kvscope::cli
