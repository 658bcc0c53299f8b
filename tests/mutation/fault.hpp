// Which planted fault is switched on, in the copy of the tree that mutation.py makes.
#pragma once

#include <cstdlib>
#include <vector>

/// The number in the environment variable KVSCOPE_FAULT, which is read once.
inline int kvscope_fault_number() {
  static const int number = [] {
    const char* const text = std::getenv("KVSCOPE_FAULT");
    return text == nullptr ? 0 : std::atoi(text);
  }();
  return number;
}

/// What hands the number to the device, a source each.
inline std::vector<void (*)()>& kvscope_fault_switches() {
  static std::vector<void (*)()> switches;
  return switches;
}
/// Before the first kernel (mutation.py puts it into launch.cuh).
inline void kvscope_switch_device_faults() {
  static const bool done = [] {
    for (const auto hand_over : kvscope_fault_switches()) hand_over();
    return true;
  }();
  static_cast<void>(done);
}

#ifdef __CUDACC__
namespace {
__device__ int kvscope_fault_on_device = 0;
const bool kvscope_has_switch = [] {
  kvscope_fault_switches().push_back([] {
    const int number = kvscope_fault_number();
    cudaMemcpyToSymbol(kvscope_fault_on_device, &number, sizeof(number));
  });
  return true;
}();
__host__ __device__ inline bool kvscope_fault(int number) {
#ifdef __CUDA_ARCH__
  return number == kvscope_fault_on_device;
#else
  return number == kvscope_fault_number();
#endif
}
}  // namespace
#else
/// True for the number that is switched on.
inline bool kvscope_fault(int number) {
  return number == kvscope_fault_number();
}
#endif
