#include "analysis/units/unit_clock.hpp"

#include <sys/resource.h>

#include <vector>

#include "core/base/nan.hpp"

namespace kvscope {

double processor_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

UnitClock UnitClock::measured(const UnitWork& work, const ProgressFn& progress,
                              std::stop_token stop) {
  std::size_t least = 0;
  std::size_t most = 0;
  std::vector<double> guesses;
  for (std::size_t unit = 0; unit < work.n_units; ++unit) {
    guesses.push_back(work.cost(unit).predicted_seconds);
    if (guesses[unit] < guesses[least]) least = unit;
    if (guesses[unit] >= guesses[most]) most = unit;
  }
  if (guesses.empty()) return {};
  const auto seconds_of = [&](std::size_t unit) {
    const double begin = processor_seconds();
    work.run(unit, progress, stop);
    return processor_seconds() - begin;
  };
  const double first = seconds_of(least);
  return through(guesses[least], first, guesses[most], least == most ? first : seconds_of(most));
}

UnitClock UnitClock::through(double guess_a, double seconds_a, double guess_b, double seconds_b) {
  UnitClock clock;
  clock.is_known_ = true;
  const double span = guess_b - guess_a;
  const double slope = (seconds_b - seconds_a) / span;
  const double offset = seconds_a - slope * guess_a;
  const bool is_line = span > 0.05 * guess_b && slope > 0.0 && offset >= 0.0;
  clock.slope_ = is_line ? slope : (seconds_a + seconds_b) / (guess_a + guess_b);
  clock.offset_ = is_line ? offset : 0.0;
  // As much, however long it should take: the time does not follow the guess at all.
  if (!is_line && slope <= 0.0 && span > 0.05 * guess_b) {
    clock.slope_ = 0.0;
    clock.offset_ = 0.5 * (seconds_a + seconds_b);
  }
  return clock;
}

double UnitClock::seconds(const UnitCost& cost) const {
  return is_known_ ? offset_ + slope_ * cost.predicted_seconds : kNan;
}

}  // namespace kvscope
