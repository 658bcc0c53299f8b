// Curves of a sweep's table, one per method: a metric against budget, keys or bytes.
#pragma once

#include <string>
#include <vector>

#include "analysis/base/table.hpp"
#include "analysis/figures/selection.hpp"

namespace kvscope::figures {

/// A number column of the sweep as an axis.
struct SweepMetric {
  std::string_view column;  // "mass_mean"
  std::string_view option;  // "mass"
  std::string_view label;   // "Attention mass kept"
  bool is_share = false;    // lies in [0, 1]
  /// What its recorded intervals are; empty: of each layer's mean over calls.
  std::string_view interval = "";
  bool has_zero = false;    // zero is what it is compared with
  bool is_percent = false;  // 0.25 is written as 25 %
};

/// Throws ConfigError for a name that is none, listing those there are.
const SweepMetric& sweep_metric(std::string_view option);

/// A column of numbers, `fallback` in every row where the table has none: rows of closed loops know
/// no layers, heads and phases.
std::vector<double> numbers_or(const Table& table, std::string_view column, double fallback);

/// Rows of query heads that a figure shows (of layers, or of whole runs, in a table without heads),
/// and what was left out.
struct SweepSelection {
  std::vector<std::size_t> rows;
  std::string budget_kind;             // the one shown; rows without a budget are in as well
  std::vector<std::string> selectors;  // in the order of the table
  std::vector<std::string> sentences;  // for the caption
  std::string rows_are;                // "query heads (over layers and traces)"
};

/// Which layers count.
enum class DenseLayers {
  leave_out_for_all,  // a layer that one shown method leaves dense counts for none: means compare
  leave_out_alone,    // only for the method that leaves it dense
};

/// Which budgets count.
enum class BudgetKinds {
  usual,  // the kind of most rows, which is one axis
  all,    // where the axis is no budget
};

/// Which rows count, of a table that has both.
enum class RowsOf { heads, layers };

/// Heads of layers that the methods make sparse: sliding-window layers are left out, and layers
/// that a method leaves dense at every budget of the table; rows that lack a number of
/// options.metric, which names at least one. Throws ConfigError for an empty
/// selection or a table that is no sweep.
SweepSelection select_sweep_rows(const Table& table, const FigureOptions& options,
                                 DenseLayers dense_layers,
                                 BudgetKinds budget_kinds = BudgetKinds::usual,
                                 RowsOf rows_of = RowsOf::heads);

/// What the curves run along: the nominal budget, or what was measured: keys kept per query row,
/// bytes read, or FLOPs of scoring and attending, both per query head and call.
enum class Along { budget, keys, bytes, flops };

/// Where a row of a sweep's table lies on that axis, [n_rows].
std::vector<double> along_values(const Table& table, Along along);

/// The axis that FigureOptions::x names; `own` if it names none. Throws ConfigError
/// for another word.
Along along_of(const FigureOptions& options, Along own);

/// One panel per metric; points are of a row of their budget. Bands of 95 % (BandKind::ci) are the
/// intervals that the result records. Where methods lie beyond the oracle, words in the panel say
/// why. `fallback`: metrics, if the options name none. `coloured`: methods among which the colours
/// are given out, for figures that grow; empty = those that are shown.
plot::Figure sweep_curves(const Table& table, const FigureOptions& options, Along along,
                          std::string_view fallback, const std::vector<std::string>& coloured = {});

/// A kind of figure that sweep_curves draws: what it needs, the command that makes that and the
/// choices there are. How it is made is left to the caller.
FigureKind sweep_kind(std::string name, std::string shows);

}  // namespace kvscope::figures
