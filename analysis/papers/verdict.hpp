// The verdict over an item: what its checks say of the values that were measured, with one
// sentence of reason.
#pragma once

#include <string>
#include <vector>

#include "analysis/papers/item.hpp"
#include "analysis/papers/measure.hpp"

namespace kvscope::papers {

struct Judgement {
  Verdict verdict = Verdict::cannot_test;
  std::string reason;  // one sentence
};

/// In this order: `never`; a value that was not run (not run); a value that a check needs is
/// missing; a need that is not met (all: cannot be tested); a form check that fails (does not
/// hold); one whose intervals overlap (cannot be tested); a size check that does not hold (holds
/// in form); else holds. Throws ConfigError if a check names a value that the item lacks.
Judgement judge(const Item& item, const std::vector<Measured>& measured);

}  // namespace kvscope::papers
