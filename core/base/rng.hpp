// Random numbers without state: element `counter` of the stream named by a few words, the same on
// every machine, in any order and from any thread.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>

namespace kvscope {

/// A stream of random numbers; its name is e.g. {seed, layer, head}. Two names that differ give
/// unrelated streams.
class CounterRng {
 public:
  explicit CounterRng(std::initializer_list<std::uint64_t> name);
  /// The words of the name, none of them negative.
  template <std::integral... Words>
  explicit CounterRng(Words... name) : CounterRng({static_cast<std::uint64_t>(name)...}) {}

  /// 64 uniform bits.
  std::uint64_t bits(std::uint64_t counter) const;
  /// Uniform in [0, 1), a multiple of 2^-53.
  double uniform(std::uint64_t counter) const;
  /// Standard normal (Box-Muller); uses library functions of the machine, so the last bit may
  /// differ between machines.
  double normal(std::uint64_t counter) const;

 private:
  std::uint64_t key_;
};

}  // namespace kvscope
