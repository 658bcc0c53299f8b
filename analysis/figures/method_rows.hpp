// Rows of a report of kvscope cost by what is one line or map of a figure: a method at one budget
// on one card.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "analysis/base/table.hpp"
#include "analysis/figures/selection.hpp"

namespace kvscope::figures {

struct MethodRows {
  std::string label;
  std::string look;  // of MethodTones: the method, and what tells its lines apart
  std::map<std::pair<double, double>, std::size_t> rows;  // by batch and context

  /// Rows of one batch by context.
  std::map<double, std::size_t> of_batch(double batch) const;
};

/// Which budgets a label says.
enum class BudgetInLabel { always, if_several };

/// In the order of the table; methods that the option names, or all. Throws ConfigError if none is
/// left.
std::vector<MethodRows> method_rows(const Table& table, const FigureOptions& options,
                                    BudgetInLabel budget);

MethodTones tones_of(const std::vector<MethodRows>& methods);

}  // namespace kvscope::figures
