#include "core/base/other_load.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "core/base/nan.hpp"

namespace kvscope {

namespace {

/// Of the processors that this process may run on: user, nice, system, irq, softirq and steal of
/// their lines; not idle, not waiting for disks.
double busy_seconds() {
  cpu_set_t ours;
  if (::sched_getaffinity(0, sizeof ours, &ours) != 0) return kNan;
  std::ifstream in("/proc/stat");
  double ticks = 0.0;
  bool has_any = false;
  for (std::string line; std::getline(in, line) && line.starts_with("cpu");) {
    std::istringstream words(line.substr(3));
    int processor = -1;
    double each[8] = {};
    if (line[3] == ' ' || !(words >> processor) || processor < 0 || processor >= CPU_SETSIZE ||
        !CPU_ISSET(static_cast<std::size_t>(processor), &ours))
      continue;
    for (double& one : each) words >> one;
    ticks += each[0] + each[1] + each[2] + each[5] + each[6] + each[7];
    has_any = true;
  }
  return has_any ? ticks / static_cast<double>(::sysconf(_SC_CLK_TCK)) : kNan;
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
