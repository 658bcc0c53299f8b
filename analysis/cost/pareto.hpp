// Which methods are worth their time: predicted time against measured loss.
//
// A point is BEATEN by one that takes no more time and whose whole interval of the loss lies below
// its own. It is ON THE FRONT if no such point can be meant: the intervals of all that take no more
// time lie at or above its own. What is neither is UNDECIDED: the measurement does not say. Dense
// attention is a point, of loss 0. REFERENCES (oracles, controls) are shown and beat nobody.
#pragma once

#include "core/base/nan.hpp"
#include "core/base/vocabulary.hpp"

namespace kvscope {

/// A method at a budget.
struct ParetoPoint {
  std::string selector;
  std::string budget_kind;  // "none": it takes no budget
  double budget = kNan;
  bool is_reference = false;
  double us = kNan;            // of attention in one layer of one call, predicted
  double dense_us = kNan;      // the same call with dense attention
  double call_speedup = kNan;  // of the whole call
  double break_even = kNan;    // tokens from which it is not slower than dense; NaN: never, unknown
  double loss = kNan;          // a share: 0.01 is one percent
  double low = kNan;           // interval of the loss; NaN if none is known
  double high = kNan;

  double speedup() const { return dense_us / us; }
  /// "quest tokens=256".
  std::string text() const;
};

enum class OnFront { reference, no, undecided, yes };

class ParetoFront {
 public:
  /// Fastest first; of equal times the least loss.
  explicit ParetoFront(std::vector<ParetoPoint> points);

  const std::vector<ParetoPoint>& points() const { return points_; }
  OnFront on_front(std::size_t i) const;

  /// What to take for a loss of at most `limit`: `best`, the fastest whose whole interval keeps to
  /// it, and `rivals`, which take no more time and of which the measurement does not say whether
  /// they keep to it. `later`: of those that keep to it and are slower than dense attention here,
  /// the one that pays from the shortest context.
  struct Answer {
    std::optional<std::size_t> best;
    std::vector<std::size_t> rivals;
    std::optional<std::size_t> later;
  };
  Answer at_loss(double limit) const;

  /// The same as a sentence. head: "At a loss of at most 1 % on CARD"; unit: " %" or " points".
  std::string answer(double limit, std::string_view head, std::string_view unit) const;

 private:
  std::string with_numbers(std::size_t i, std::string_view unit) const;

  std::vector<ParetoPoint> points_;
};

}  // namespace kvscope
