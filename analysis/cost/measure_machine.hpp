// This machine as a hardware profile: every number measured with the program's own kernels.
#pragma once

#include <stop_token>

#include "analysis/cost/hardware.hpp"
#include "core/base/parallel.hpp"
#include "core/base/progress.hpp"
#include "core/base/vocabulary.hpp"

namespace kvscope {

/// Measures a machine, as often as it is asked to; of every number the best counts, since other
/// programs only add. One thread and many make different profiles.
class MachineMeter {
 public:
  /// now: the seconds of a clock, which is to be the one that the profile is compared by. Takes
  /// 600 MB of memory.
  MachineMeter(ThreadPool& pool, std::function<double()> now);
  ~MachineMeter();
  MachineMeter(const MachineMeter&) = delete;
  MachineMeter& operator=(const MachineMeter&) = delete;

  /// Takes some seconds. Throws Interrupted on a stop.
  void measure(const ProgressFn& progress, const std::stop_token& stop);
  /// After measure().
  HardwareProfile profile(const std::string& cpu) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvscope
