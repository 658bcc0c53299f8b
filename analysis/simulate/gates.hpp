// Gates: reasons not to believe what a table of results ranks, found by rule and named beside it.
//
// A gate looks at the rows of one cell (one task, protocol and length), whose methods answered the
// same prompts, and never changes a number. Tables mark nothing as best that a gate doubts.
#pragma once

#include <functional>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/simulate/intervals.hpp"

namespace kvscope {

// The gates, by the names that they have in results.
inline constexpr std::string_view kSparseAboveDense = "sparse-above-dense";  // beyond chance
inline constexpr std::string_view kMoreBudgetWorse = "more-budget-worse";
inline constexpr std::string_view kSaturated = "saturated";       // dense and all methods at 100 %
inline constexpr std::string_view kDenseCannot = "dense-cannot";  // the dense model fails
inline constexpr std::string_view kTooFewTrials = "too-few-trials";   // the best is not told apart
inline constexpr std::string_view kNothingChosen = "nothing-chosen";  // every key was attended to

/// One row of a result, as gates see it.
struct JudgedRow {
  std::string cell;         // rows of one cell are compared: "passkey, 4096 tokens, all"
  std::string selector;     // "full" is the dense model; oracles are never ranked
  std::string budget_kind;  // "none" for methods that take none
  double budget = 0.0;
  double mean = 0.0;     // higher is better
  bool is_share = true;  // of prompts, in [0, 1]: 1 is everything
  std::string shown;     // the value in a sentence; empty: the mean as percent
  double kv_reduction = std::numeric_limits<double>::quiet_NaN();  // 0: as the dense model
};

struct Doubt {
  std::string_view gate;
  std::string cell;
  std::vector<std::size_t> rows;  // that nothing should mark
  std::string sentence;
};

/// Compares row a with row b on the same prompts (first = a).
using RowTest = std::function<PairedTest(std::size_t a, std::size_t b)>;

/// A dense share of correct answers from which a drop is the selector's.
inline constexpr double kDenseSolves = 0.5;
/// Chance is refused at this level before a sparse method counts as better than the dense model ...
inline constexpr double kAboveDenseLevel = 0.01;
/// ... and at this one before two ranked methods count as different.
inline constexpr double kRankedLevel = 0.05;

/// All doubts about the rows, cell by cell. Methods are ranked against those of the same budget
/// (and of none); budgets of one method against each other.
std::vector<Doubt> find_doubts(std::span<const JudgedRow> rows, const RowTest& test);

/// For each of n rows the gates that doubt it, joined by +; empty if none does.
std::vector<std::string> doubt_words(const std::vector<Doubt>& doubts, std::size_t n_rows);

/// [{gate, cell, rows, sentence}].
nlohmann::ordered_json doubts_json(const std::vector<Doubt>& doubts);

}  // namespace kvscope
