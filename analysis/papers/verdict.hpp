// The verdict over an item: what its checks say of the values that were measured, and why.
#pragma once

#include <string>
#include <vector>

#include "analysis/papers/item.hpp"
#include "analysis/papers/measure.hpp"
#include "analysis/papers/paired.hpp"

namespace kvscope::papers {

enum class Answer { yes, open, no };

/// A check as it came out. Numbers of the paired difference are NaN where nothing was paired.
struct CheckOutcome {
  const Check* check = nullptr;
  Answer answer = Answer::open;
  Pairing pairing = Pairing::none;
  Index units = 0;
  double difference = 0.0;  // left - right: a share, the logarithm of a ratio of perplexities
  double low = 0.0;         // its 95 % interval
  double high = 0.0;
  double p = 0.0;
  double counts = 0.0;               // the smallest difference that counts
  bool is_too_small = false;         // "no", since what the interval leaves does not count
  std::vector<std::size_t> against;  // layers that contradict
  double kept_left = 0.0;            // keys per query of either side; NaN where nobody says
  double kept_right = 0.0;
  double power = 0.0;   // to see the smallest difference that counts, at the spread that was found
  double more = 0.0;    // units that would decide it, if it is open; infinity: no number of them
  std::string missing;  // not measured: why
  std::string sentence;
};

struct Judgement {
  Verdict verdict = Verdict::cannot_test;
  std::string reason;                // of every check that decides
  std::vector<CheckOutcome> checks;  // in the item's order; empty where no check was looked at
};

/// The verdict in words; of what is too small "smaller than 10 points".
std::string word_of(const Judgement& judgement);

/// "QuoKA, 25 % of the cache is above StreamingLLM, 25 %": what a check asks, before anything
/// runs.
std::string hypothesis_of(const Item& item, const Check& check);

/// "+33.3 points [+12.0, +52.1] over 20 prompts", "a ratio of 1.059 [1.021, 1.106] over 28 blocks
/// of 64 tokens". Only for checks that were paired.
std::string difference_words(const CheckOutcome& outcome);

/// In this order: `never`; a value that was not run (not run); a value that a check needs is
/// missing; a need that is not met (all: cannot be tested); form checks that fail (does not hold;
/// too small, if no more than that was shown of any); some that are open, as what a constructed
/// recording agrees with (not decided); size checks that do not hold, or
/// only_form (holds in form); else holds. So under each reading; where two are decided and differ,
/// it depends on the reading, and one that is open leaves the whole open. A claim that is true is
/// called false in at most 2.5 % of all reports, however many checks it has: what refutes is asked
/// for at 95 % over all its form checks together. Throws ConfigError if a check names a value that
/// the item lacks.
Judgement judge(const Item& item, const std::vector<Measured>& measured, const FindRun& find_run);

}  // namespace kvscope::papers
