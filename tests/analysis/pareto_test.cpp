// The front of time and loss against its definition, taken point by point, and its sentences.
#include "analysis/cost/pareto.hpp"

#include <random>

#include "tests/analysis/kit.hpp"

namespace kvscope::pareto_test {

ParetoPoint point(const std::string& name, double us, double low, double loss, double high) {
  ParetoPoint made{
      .selector = name, .us = us, .dense_us = 10.0, .loss = loss, .low = low, .high = high};
  return made;
}

OnFront status_of(const ParetoFront& front, const std::string& name) {
  const auto found = std::ranges::find(front.points(), name, &ParetoPoint::selector);
  return front.on_front(static_cast<std::size_t>(found - front.points().begin()));
}

TEST_CASE("pareto: one is beaten only by one as fast whose interval lies wholly below") {
  const ParetoFront front({point("full", 10, 0, 0, 0), point("fast", 1, .3, .4, .5),
                           point("slower", 2, .2, .25, .35), point("worse", 3, .6, .7, .8),
                           point("better", 4, .05, .1, .15)});
  CHECK(front.points()[0].selector == "fast");
  CHECK(status_of(front, "fast") == OnFront::yes);
  CHECK(status_of(front, "slower") == OnFront::undecided);  // overlaps one that is faster
  CHECK(status_of(front, "worse") == OnFront::no);
  CHECK(status_of(front, "better") == OnFront::yes);
  CHECK(status_of(front, "full") == OnFront::yes);
}

TEST_CASE("pareto: the front and the answer are those of the definition, point by point") {
  std::mt19937 random(7);
  const auto one_of = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int n_seen[4] = {};
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<ParetoPoint> points;
    const int n = 1 + one_of(8);
    for (int i = 0; i < n; ++i) {
      const double low = one_of(9) - 1;  // small whole numbers: ties occur
      const double loss = low + one_of(3);
      ParetoPoint made = point("m" + std::to_string(i), 1 + one_of(6), low, loss, loss + one_of(3));
      made.dense_us = 3.0;
      made.is_reference = one_of(6) == 0;
      if (one_of(8) == 0) made.low = made.high = kNan;
      if (one_of(3) > 0) made.break_even = 100 + one_of(50);
      points.push_back(made);
    }
    const ParetoFront front(points);
    REQUIRE(front.points().size() == points.size());
    const double limit = one_of(8);
    const ParetoFront::Answer answer = front.at_loss(limit);
    const auto keeps = [&](const ParetoPoint& p) { return !p.is_reference && p.high <= limit; };
    const auto is_before = [](const ParetoPoint& a, const ParetoPoint& b) {
      return a.us < b.us || (a.us == b.us && a.loss < b.loss);
    };
    for (std::size_t i = 0; i < points.size(); ++i) {
      const ParetoPoint& p = front.points()[i];
      bool is_beaten = false;
      bool may_be = false;
      for (const ParetoPoint& other : points) {
        if (other.selector == p.selector || other.is_reference || other.us > p.us) continue;
        is_beaten = is_beaten || other.high < p.low;
        may_be = may_be || !(other.low >= p.high);
      }
      const OnFront expected = p.is_reference ? OnFront::reference
                               : is_beaten    ? OnFront::no
                               : may_be       ? OnFront::undecided
                                              : OnFront::yes;
      CHECK(front.on_front(i) == expected);
      ++n_seen[static_cast<int>(expected)];
      if (answer.best && keeps(p)) CHECK_FALSE(is_before(p, front.points()[*answer.best]));
      const bool is_rival = std::ranges::find(answer.rivals, i) != answer.rivals.end();
      const bool may_keep = !p.is_reference && !keeps(p) && !(p.low > limit);
      if (is_rival) CHECK(may_keep);
      if (may_keep && (!answer.best || is_before(p, front.points()[*answer.best]))) CHECK(is_rival);
      if (keeps(p) && p.us > p.dense_us && !std::isnan(p.break_even)) {
        REQUIRE(answer.later);
        CHECK(front.points()[*answer.later].break_even <= p.break_even);
      }
    }
    CHECK(answer.best.has_value() == std::ranges::any_of(points, keeps));
    if (answer.best) CHECK(keeps(front.points()[*answer.best]));
    if (answer.later) CHECK(keeps(front.points()[*answer.later]));
  }
  for (const int n : n_seen) CHECK(n > 20);
}

TEST_CASE("pareto: the sentence names the fastest that keeps to the loss, and who may") {
  ParetoPoint quest = point("quest", 4, .002, .004, .007);
  quest.budget_kind = "tokens";
  quest.budget = 512;
  quest.call_speedup = 1.5;
  ParetoPoint later = point("slow", 20, .001, .002, .003);
  later.break_even = 40000;
  ParetoPoint oracle = point("oracle", 1, 0, 0, 0);
  oracle.is_reference = true;
  const ParetoPoint full = point("full", 10, 0, 0, 0);
  CHECK(ParetoFront({full, quest, later, oracle, point("fast", 2, .005, .009, .02),
                     point("bad", 1, .1, .2, .3)})
            .answer(0.01, "At most 1 %", " %") ==
        "At most 1 %: quest tokens=512 (0.4 [0.2, 0.7] %, 2.5 times as fast as dense, the whole "
        "call 1.5 times); as fast or faster, and not known to keep to it or not: fast (0.9 [0.5, "
        "2] %, 5 times as fast as dense); slower than dense here, and pays from 40000 tokens: "
        "slow.");
  CHECK(ParetoFront({full, point("bad", 1, .1, .2, .3)}).answer(0.01, "H", " %") ==
        "H: full attention, since nothing that is sure to keep to it is faster.");
  CHECK(ParetoFront({point("bad", 1, .1, .2, .3)}).answer(0.01, "H", " %") ==
        "H: nothing is sure to keep to it.");
}

}  // namespace kvscope::pareto_test
