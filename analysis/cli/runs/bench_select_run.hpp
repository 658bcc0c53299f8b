// How long methods take to choose keys, and attention to read them, in made-up calls: the
// measurement behind kvscope bench select.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/cli/frame/stopwatch.hpp"
#include "analysis/cli/runs/bench_report.hpp"
#include "analysis/cli/runs/bench_workload.hpp"
#include "analysis/cost/work.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/selectors/score_engine.hpp"
#include "core/tensor/dtype.hpp"

namespace kvscope::cli {

/// What is measured. Each method has the budget that it takes (nothing: an empty Budget).
struct SelectBenchPlan {
  std::vector<std::pair<MethodSpec, Budget>> methods;
  std::vector<Phase> phases = {Phase::prefill, Phase::decode};
  std::vector<Index> lengths;  // ascending
  WorkloadShape shape;         // n_queries: of a prefill call; n_tokens is set from lengths
  Index n_repeats = 5;         // measured rounds, after one that is not
  ScorePrecision precision = ScorePrecision::f32;
  DType kv_dtype = DType::f32;
};

/// One method in one call; the times of the rounds run in parallel with those of dense attention.
struct SelectBenchRow {
  std::string selector;
  std::optional<Budget> budget;
  LayerWork work;
  double kept = 0.0;  // keys of a list, mean
  double append_seconds = 0.0;
  std::vector<double> seconds;         // of choosing
  std::vector<double> attend_seconds;  // of attending to the lists; empty if they hold everything
};

struct SelectBenchCase {
  Phase phase = Phase::prefill;
  Index n_tokens = 0;
  Index n_tok = 0;  // queries
  double dense_flops = 0.0;
  std::vector<double> dense_seconds;
  std::vector<SelectBenchRow> rows;
};

/// Each method with the first budget of a kind that it takes.
struct BudgetedMethods {
  std::vector<std::pair<MethodSpec, Budget>> methods;
  std::vector<std::string> left_out;  // sentences
};
BudgetedMethods with_budgets(const std::vector<MethodSpec>& specs,
                             const std::vector<Budget>& budgets);

/// The budgets of bench select without --budget.
std::vector<Budget> default_bench_budgets();

/// Every registered method as it is by default.
std::vector<MethodSpec> all_methods_of_registry();

/// Throws Interrupted on a stop.
std::vector<SelectBenchCase> run_select_bench(const SelectBenchPlan& plan, const BenchMeans& means);

}  // namespace kvscope::cli
