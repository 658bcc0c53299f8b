// What else kept this machine busy while something was timed.
#pragma once

#include <chrono>

namespace kvscope {

/// Looks at the processors that this process may run on (/proc/stat) and at its own time when it is
/// made, and again when it is asked.
class OtherLoad {
 public:
  OtherLoad();
  /// How many of them other processes, or other guests of the host, kept busy on the average since
  /// then; NaN where the system does not say.
  double cores() const;

 private:
  std::chrono::steady_clock::time_point begin_;
  double busy_ = 0.0;  // processor seconds, of all
  double own_ = 0.0;   // and of this process and the children that it has waited for
};

}  // namespace kvscope
