// Small results of every kind that figures take: of the analyses themselves where they are quick,
// of simulations and costs what reports of them hold.
#pragma once

#include <memory>

#include "analysis/sweep/sweep.hpp"
#include "analysis/sweep/sweep_rows.hpp"
#include "tests/analysis/figures/drawn.hpp"
#include "tests/analysis/kinds/analyses.hpp"
#include "tests/support/places.hpp"
#include "tests/support/run_sweep.hpp"

namespace kvscope::testing {

/// A sweep over three layers of four heads, as CSV.
inline const std::string& swept() {
  static const std::string csv = [] {
    SweepOptions options{
        .selectors = {"full", "oracle-topk", "quest:page-size=4", "quoka"},
        .budgets = {Budget::parse("4"), Budget::parse("12"), Budget::parse("ratio=0.3")},
        .replay = {.calls = {.chunk = 16}, .dense_layers = 0},
        .n_resamples = 200};
    const auto open = [] {
      test::PlantOptions plant{.n_layers = 3, .n_tokens = 80};
      plant.sink = plant.band = 1.0;
      return std::make_unique<MemoryTrace>(test::planted_trace(plant));
    };
    ThreadPool pool(2);
    Store store;
    return sweep_csv(run_sweep(plan_sweep({{"a.h5", open, {}}}, options), store, pool));
  }();
  return csv;
}

/// Results by the name of their kind; a figure of a new kind of analysis finds its own here, since
/// test::analyses() knows every one.
std::vector<std::unique_ptr<MemoryResult>> samples();

}  // namespace kvscope::testing
