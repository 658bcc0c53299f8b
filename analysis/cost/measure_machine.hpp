// This machine as a hardware profile: every number measured with the program's own kernels.
#pragma once

#include <stop_token>
#include <string>

#include "analysis/cost/hardware.hpp"
#include "core/base/parallel.hpp"
#include "core/base/progress.hpp"

namespace kvscope {

/// Takes some seconds and 600 MB of memory; of every number the best of three rounds counts, since
/// other programs only add. One thread and many make different profiles. cpu: its name. Throws
/// Interrupted on a stop.
HardwareProfile measure_machine(const std::string& cpu, ThreadPool& pool,
                                const ProgressFn& progress, const std::stop_token& stop);

}  // namespace kvscope
