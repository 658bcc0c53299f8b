// The frame of figures of a table: a line, map or bar for each method with its budget, and with its
// card where there are several. A kind says what lies along the axes, and what its caption says.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "analysis/base/table.hpp"
#include "analysis/figures/result_view.hpp"
#include "analysis/figures/selection.hpp"

namespace kvscope::figures {

struct MethodRows {
  std::string selector;
  std::string label;  // "Quest, 256"
  plot::Tone tone;
  std::vector<std::size_t> rows;  // in the order of the table
};

/// Which budgets a label says.
enum class BudgetInLabel { always, if_several };

/// In the order of the table, of those rows that count: methods that the option names, or all. None
/// is no error here.
std::vector<MethodRows> method_rows(
    const Table& table, const FigureOptions& options, BudgetInLabel budget,
    const std::function<bool(std::size_t)>& counts = [](std::size_t) { return true; });

/// Numbers by row, with the ends of their intervals where the table has some.
struct RowNumbers {
  std::vector<double> values;
  std::vector<double> low = {};  // empty: no intervals
  std::vector<double> high = {};
  std::vector<double> weights = {};  // of rows in means; empty: all alike

  /// All of them times a unit.
  RowNumbers in(double unit) const;
};
/// A column with NAME_low and NAME_high; NaN in every row where the table has no such column.
RowNumbers numbers_with_ends(const Table& table, const std::string& column);

/// What rows at one place are: means of those that have a number.
struct RowMean {
  double sum = 0.0;
  double weight = 0.0;
  MeanEnds ends;
  std::vector<std::size_t> rows;

  void add(const RowNumbers& numbers, std::size_t row);
  /// NaN where nothing was added.
  double value() const { return sum / weight; }
};

/// The methods with rows at those places that all of them have a number of at one x, where there
/// are such, so that lines compare. What is left out, the caption says.
std::vector<MethodRows> at_common_places(const Table& table, std::vector<MethodRows> methods,
                                         std::span<const double> x, const RowNumbers& numbers,
                                         std::vector<std::string>& caption);

/// Rows of a method by x, and by y and x: [ys.size()][xs.size()].
std::map<double, RowMean> points_of(const MethodRows& method, std::span<const double> x,
                                    const RowNumbers& numbers);
std::vector<RowMean> cells_of(const MethodRows& method, std::span<const double> x,
                              std::span<const double> y, const RowNumbers& numbers,
                              const std::vector<double>& xs, const std::vector<double>& ys);

/// Adds a line for each method that has a number, by x. A NaN is a gap, and so is what a
/// logarithmic axis cannot show. What several rows at one place differ in, the caption says.
void add_lines(plot::Panel& panel, const Table& table, const std::vector<MethodRows>& methods,
               std::span<const double> x, const RowNumbers& y, std::vector<std::string>& caption);

/// Says once what the means of several rows are over; nothing where each is of one.
void say_means(const Table& table, const std::vector<std::vector<std::size_t>>& groups,
               std::vector<std::string>& caption);

/// Says to which cost budgets were set (--match) and which methods missed it, and of which card and
/// phase predicted costs are.
void say_match(const Table& table, const std::vector<MethodRows>& methods,
               std::vector<std::string>& caption);
void say_cards(const Table& table, std::vector<std::string>& caption);

/// What rows of these methods have in a column, ascending, each once.
std::vector<double> values_of(const std::vector<MethodRows>& methods,
                              std::span<const double> column);

/// An array [pair, axis, ...] as rows: `column` by the axes (a name and the array of its numbers),
/// with what rows 0, step, 2 step, ... of `pairs` say of methods, budgets and keys kept. Throws
/// FormatError if they do not fit.
Table rows_of_array(const ResultView& result, const std::string& array, const std::string& column,
                    const std::vector<std::pair<std::string, std::string>>& axes,
                    const Table& pairs, std::size_t step);

}  // namespace kvscope::figures
