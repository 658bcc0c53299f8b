// The numbers behind a sweep's curves: values of heads by method and budget, with the intervals
// that the result records.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/base/statistics.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/sweep_curves.hpp"

namespace kvscope::figures {

/// Values of one method at one budget.
struct SweepCell {
  std::vector<double> values;  // of query heads
  MeanEnds ends;               // of the recorded intervals
  Mean x;
  Mean kept;
  std::size_t row = 0;  // one of the table's that are in it
};

/// A budget and its kind, of the cost that it was to meet, in the order of the axis. NaN-free: -1
/// for methods that take none.
using BudgetKey = std::pair<std::int32_t, double>;

struct SweepCells {
  std::map<std::string, std::map<BudgetKey, SweepCell>> of;  // by selector
  bool has_layer_ends = false;  // where bands come from: rows of whole layers, or of heads
  bool has_head_ends = false;
};

/// Where a result records an interval of the metric: "mass_low" beside "mass_mean". Empty if not.
std::string interval_stem(const Table& table, std::string_view column);

/// Values of the heads by method and budget. Intervals are those of whole layers, which tables and
/// notebooks show as well, where a layer's own row is the mean of the heads that are shown; else
/// (some heads are chosen, or layers have no rows) those of each head.
SweepCells collect_cells(const Table& table, const SweepSelection& selection,
                         const SweepMetric& metric, Along along);

}  // namespace kvscope::figures
