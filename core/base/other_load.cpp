#include "core/base/other_load.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "core/base/nan.hpp"

namespace kvscope {

namespace {

/// user, nice, system, irq, softirq and steal of the line "cpu"; not idle, not waiting for disks.
double busy_seconds() {
  std::ifstream in("/proc/stat");
  std::string word;
  double ticks[8] = {};
  in >> word;
  for (double& tick : ticks) in >> tick;
  if (!in || word != "cpu") return kNan;
  return (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6] + ticks[7]) /
         static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double own_seconds() {
  double seconds = 0.0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    struct rusage usage {};
    ::getrusage(who, &usage);
    for (const timeval& time : {usage.ru_utime, usage.ru_stime})
      seconds += static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  }
  return seconds;
}

}  // namespace

OtherLoad::OtherLoad()
    : begin_(std::chrono::steady_clock::now()), busy_(busy_seconds()), own_(own_seconds()) {}

double OtherLoad::cores() const {
  const double passed =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  if (!(passed > 0.0)) return kNan;
  const double others = (busy_seconds() - busy_) - (own_seconds() - own_);
  return std::max(others, 0.0) / passed;
}

}  // namespace kvscope
