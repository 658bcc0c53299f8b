// What a plan would have said after two jobs of each kind, beside what the others took.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "analysis/runs/store.hpp"
#include "analysis/study/study_items.hpp"

namespace kvscope {

struct ForecastCheck {
  std::string label;       // of the kind: "sweep, verifier, steps"
  std::size_t probes = 0;  // jobs that were measured first
  std::size_t jobs = 0;    // the others, which were predicted
  double seconds_predicted = 0.0;
  double seconds_measured = 0.0;  // of processor, of all others together
  double memory_predicted = 0.0;
  double memory_measured = 0.0;  // bytes of a worker, of the others at most
};

/// Of each kind of job of the plan of which the store knows more than the two jobs that `kvscope
/// study plan --probe` would have done first: those two are taken as all that is known of it.
std::vector<ForecastCheck> check_forecast(const StudyPlan& plan, const Store& store);

}  // namespace kvscope
