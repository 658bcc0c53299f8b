// SplitMix64's mixing function, from which the project's reproducible draws and hashes are made.
#pragma once

#include <cstdint>

namespace kvscope {

/// SplitMix64 adds this to its state before each draw: odd, 2^64 / golden ratio.
inline constexpr std::uint64_t kSplitMix64Step = 0x9e3779b97f4a7c15ULL;

/// Bijective on 64 bits; every input bit changes about half of the output bits (Steele, Lea and
/// Flood, OOPSLA 2014, with the constants of Stafford's variant 13). The n-th draw of SplitMix64
/// with seed s is splitmix64_mix(s + n * kSplitMix64Step), n = 1, 2, ...
constexpr std::uint64_t splitmix64_mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace kvscope
