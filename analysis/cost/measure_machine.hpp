// This machine as a hardware profile: every number measured with the program's own kernels.
#pragma once

#include <stop_token>
#include <string>

#include "analysis/cost/hardware.hpp"
#include "core/base/parallel.hpp"
#include "core/base/progress.hpp"

namespace kvscope {

/// Takes some seconds and 600 MB of memory. On the threads of `pool`: one thread and many make
/// different profiles. Times are the least of some repeats; they waver by some percent, more on a
/// busy machine. Throws Interrupted on a stop.
HardwareProfile measure_machine(ThreadPool& pool, const std::string& cpu,
                                const ProgressFn& progress, const std::stop_token& stop);

}  // namespace kvscope
