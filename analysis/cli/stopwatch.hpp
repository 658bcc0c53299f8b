// Wall-clock times of pieces of work, for the commands that measure speed.
#pragma once

#include <ctime>
#include <span>

#include "analysis/base/statistics.hpp"
#include "core/base/fields.hpp"

namespace kvscope::cli {

/// What a time is: of the wall, or of this process's processors. The second leaves out what other
/// programs take, and means the same on one thread only.
enum class BenchClock { wall, cpu };

/// Seconds from some moment on.
inline double now_by(BenchClock clock) {
  std::timespec time{};
  ::clock_gettime(clock == BenchClock::cpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Seconds of a clock that `work()` takes.
template <class Work>
double seconds_of(BenchClock clock, Work&& work) {
  const double start = now_by(clock);
  work();
  return now_by(clock) - start;
}

/// Seconds that `work()` takes.
template <class Work>
double seconds_of(Work&& work) {
  return seconds_of(BenchClock::wall, work);
}

/// The middle of the values; NaN if there are none.
inline double median(std::span<const double> values) {
  return quantile(values, 0.5);
}

}  // namespace kvscope::cli
