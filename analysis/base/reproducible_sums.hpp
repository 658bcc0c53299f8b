// Sums that many threads add to in any order and that come out with the same bits: numbers in fixed
// point, since whole numbers add up alike in every order and floats do not.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <vector>

namespace kvscope {

/// Adds to a count from several threads at once.
inline void add_count(std::int64_t& count, std::int64_t n) {
  std::atomic_ref<std::int64_t>(count).fetch_add(n, std::memory_order_relaxed);
}

/// n sums. An addend is rounded to a multiple of 2^-38 (error at most 2e-12), and a sum may reach
/// kLargest.
class ReproducibleSums {
 public:
  static constexpr double kLargest = 1 << 24;

  explicit ReproducibleSums(std::size_t n) : sums_(n, 0) {}

  /// Safe from several threads at once.
  void add(std::size_t index, double x) {
    const std::int64_t units = std::llround(x * kUnitsPerOne);
    if (units != 0) add_count(sums_[index], units);
  }
  /// Not while others add.
  double sum(std::size_t index) const { return static_cast<double>(sums_[index]) / kUnitsPerOne; }
  std::size_t size() const { return sums_.size(); }

 private:
  static constexpr double kUnitsPerOne = 0x1p38;
  std::vector<std::int64_t> sums_;
};

}  // namespace kvscope
