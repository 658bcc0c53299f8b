// The cells of a retrieval's table: which prompts stand behind a row, its interval, its tests
// against other rows of the same prompts, the doubts of gates.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "analysis/simulate/gates.hpp"
#include "analysis/simulate/measured_cost.hpp"
#include "analysis/simulate/retrieval.hpp"

namespace kvscope {

/// Where a case stands in the grid; the trial runs fastest.
struct RetrievalPlace {
  std::size_t protocol = 0, kind = 0, length = 0, depth = 0, trial = 0;
};

/// The grid of cases [protocol, kind, length, depth, trial].
struct RetrievalGrid {
  std::size_t n_kinds = 0, n_lengths = 0, n_trials = 0;
  std::vector<double> depths;
  std::size_t n_texts = 1;

  /// Trials take the texts in turn.
  std::size_t text_of(std::size_t trial) const { return trial % n_texts; }

  std::size_t index_of(const RetrievalPlace& place) const;
  RetrievalPlace place_of(std::size_t index) const;
};

/// A row of the table.
struct RetrievalCell {
  RetrievalPlace place;              // of its first case; depth counts only if it is one of them
  std::optional<std::size_t> depth;  // empty: over all depths
  std::size_t turn = 0;
  std::size_t pair = 0;
  std::vector<double> scores;            // by prompt, in the order of the cases
  std::vector<std::size_t> texts;        // which text each prompt is of
  std::vector<const UnitResult*> units;  // the same
  double mean = 0.0;                     // NaN, as all numbers, where a prompt failed
  Interval interval;
};

/// Numbers that a unit has per turn: the score, then the totals behind reductions.
inline constexpr std::size_t kTurnValues = 1 + kKeptValues;

/// The cell's prompts with trials before n_trials; units that were not run are left out.
RetrievalCell make_cell(const RetrievalGrid& grid, const SimulationUnits& units,
                        RetrievalPlace place, std::optional<std::size_t> depth, std::size_t turn,
                        std::size_t pair, std::size_t n_trials);

/// Of a chain: steps before the first error, share of prompts that go on as the dense model does,
/// the first step of any prompt that does not; NaN for what is none, and for other kinds.
std::array<double, 3> chain_numbers(const RetrievalCell& cell,
                                    const std::optional<RetrievalCell>& dense,
                                    const RetrievalOptions& options);

/// Tests of cell a against cell b on the prompts that both answered; NaN where one has failed.
PairedTest test_cells(const RetrievalCell& a, const RetrievalCell& b);

/// All cells as rows for the gates.
std::vector<JudgedRow> judged_cells(const std::vector<RetrievalCell>& cells,
                                    const SimulationSetup& setup, const RetrievalOptions& options,
                                    const std::vector<double>& depths);

/// Tests within each place of the grid: every method against full, and methods of equal budget and
/// budgets of one method against each other. [{protocol, kind, length, ..., first, second, prompts,
/// only_first, only_second, difference, low, high, p}].
nlohmann::ordered_json comparisons_json(const std::vector<RetrievalCell>& cells,
                                        const std::vector<JudgedRow>& rows,
                                        const SimulationSetup& setup);

}  // namespace kvscope
