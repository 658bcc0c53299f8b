// How long units take here: two of them are timed, and the others follow from what is guessed of
// them all.
#pragma once

#include <stop_token>

#include "analysis/units/unit_folder.hpp"
#include "core/base/progress.hpp"

namespace kvscope {

/// Of this process so far, all threads together.
double processor_seconds();

/// Processor seconds from the guess of UnitCost: known once two units were timed on this machine.
class UnitClock {
 public:
  /// Knows nothing: seconds() is NaN.
  UnitClock() = default;
  /// Does the unit that should take least and the one that should take most.
  static UnitClock measured(const UnitWork& work, const ProgressFn& progress, std::stop_token stop);
  /// Through two measurements (guessed, seconds); neither slope nor offset below 0.
  static UnitClock through(double guess_a, double seconds_a, double guess_b, double seconds_b);

  double seconds(const UnitCost& cost) const;

 private:
  double offset_ = 0.0;
  double slope_ = 0.0;
  bool is_known_ = false;
};

}  // namespace kvscope
