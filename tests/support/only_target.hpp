// Restricts the vector kernels to one instruction set, so that each one that this machine
// has is tested.
#pragma once

#include <hwy/targets.h>

#include <cstdint>
#include <vector>

namespace kvscope::test {

/// The kernels run on `target` (HWY_AVX2 ...) while it lives.
class OnlyTarget {
 public:
  explicit OnlyTarget(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
  }
  ~OnlyTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
  OnlyTarget(const OnlyTarget&) = delete;
  OnlyTarget& operator=(const OnlyTarget&) = delete;
};

/// Those of the compiled x86 targets that this machine can run.
inline std::vector<std::int64_t> testable_targets() {
  std::vector<std::int64_t> targets;
  for (const std::int64_t target : {std::int64_t{HWY_SSSE3}, std::int64_t{HWY_SSE4},
                                    std::int64_t{HWY_AVX2}, std::int64_t{HWY_AVX3}}) {
    if ((hwy::SupportedTargets() & HWY_TARGETS & target) != 0) targets.push_back(target);
  }
  return targets;
}

}  // namespace kvscope::test
