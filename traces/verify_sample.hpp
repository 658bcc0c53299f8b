// Which parts of a trace a verification looks at when it may not look at all: in an order that a
// seed shuffles, until a share of them or the time is over.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "core/tensor/tensor.hpp"

namespace kvscope {

/// How much of a trace is looked at. As it is: all of it.
struct VerifyBounds {
  using Clock = std::chrono::steady_clock;
  double share = 1.0;  // of checksums, and of layers and KV heads whose rows are recomputed
  Clock::time_point end = Clock::time_point::max();

  bool is_all() const { return share >= 1.0 && end == Clock::time_point::max(); }
  bool is_over() const { return end != Clock::time_point::max() && Clock::now() >= end; }
  /// The same with 1/n of the time that is left from now.
  VerifyBounds part_of(Index n) const;
};

/// Takes some of n things. Not for several threads at once.
class SampledVisits {
 public:
  SampledVisits(Index n, const VerifyBounds& bounds, std::uint64_t seed);
  /// The next one; -1 when it is enough. The first is given whatever the time.
  Index next();
  Index n_taken() const { return taken_; }

 private:
  VerifyBounds bounds_;
  std::vector<Index> order_;
  Index most_ = 0;
  Index taken_ = 0;
};

}  // namespace kvscope
