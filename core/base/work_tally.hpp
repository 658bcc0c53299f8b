// What the kernels of choosing keys do, counted while somebody listens: the work of this program on
// a processor, where a method's published formula says what a card would do.
//
// A kernel counts once per call, not per element, so that nobody pays for it. Counts do not depend
// on time; where work is divided by threads, they depend a little on how many there are.
#pragma once

#include <atomic>

#include "core/base/error.hpp"
#include "core/base/vocabulary.hpp"

namespace kvscope {

enum class Counted : std::size_t {
  dots_one,      // FLOPs of f32 products of one vector with keys as they lie in a cache
  dots_few,      // of two to four vectors with each key
  dots_many,     // of more, which make lanes
  columns,       // FLOPs of products with keys that lie channel by channel
  dots_f64,      // FLOPs of products in f64
  exponentials,  // of softmaxes
  ranked,        // scores among which the largest, or those with a share of the sum, are found
  listed,        // keys that are written into a list
  visited,       // numbers of queries or keys that scalar loops pass over
  loops,         // parallel loops
};
inline constexpr std::array<std::string_view, 10> kCountedNames = {
    "dots_one",     "dots_few", "dots_many", "columns", "dots_f64",
    "exponentials", "ranked",   "listed",    "visited", "loops"};

struct WorkCounts {
  std::array<double, kCountedNames.size()> n{};
  double of(Counted what) const { return n[static_cast<std::size_t>(what)]; }
};

/// Counts what all threads do while it lives.
class WorkTally {
 public:
  /// Throws ConfigError while there is another one: work would be counted for the wrong call.
  WorkTally() {
    WorkTally* nobody = nullptr;
    if (!listener().compare_exchange_strong(nobody, this))
      throw ConfigError("another measurement of this process counts its work; wait for its end");
  }
  ~WorkTally() { listener().store(nullptr); }
  WorkTally(const WorkTally&) = delete;
  WorkTally& operator=(const WorkTally&) = delete;

  WorkCounts counts() const {
    WorkCounts out;
    for (std::size_t i = 0; i < n_.size(); ++i) out.n[i] = n_[i].load();
    return out;
  }
  void add(Counted what, double n) {
    n_[static_cast<std::size_t>(what)].fetch_add(n, std::memory_order_relaxed);
  }
  static std::atomic<WorkTally*>& listener() {
    static constinit std::atomic<WorkTally*> one{nullptr};
    return one;
  }

 private:
  std::array<std::atomic<double>, kCountedNames.size()> n_{};
};

/// Called by kernels.
template <class Number>
void count_work(Counted what, Number n) {
  if (WorkTally* tally = WorkTally::listener().load(std::memory_order_relaxed))
    tally->add(what, static_cast<double>(n));
}

/// FLOPs of n_rows vectors of d numbers with n_keys keys, in f32.
template <class Number>
void count_dots(Number n_rows, Number n_keys, Number d) {
  const Counted what = n_rows == 1   ? Counted::dots_one
                       : n_rows <= 4 ? Counted::dots_few
                                     : Counted::dots_many;
  count_work(what, 2.0 * static_cast<double>(n_rows) * static_cast<double>(n_keys) *
                       static_cast<double>(d));
}

}  // namespace kvscope
