// Reads the values of an item from results: rows that match, one number of them, its interval.
// Computes nothing that a command could have computed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "analysis/base/table.hpp"
#include "analysis/figures/result_view.hpp"
#include "analysis/papers/item.hpp"

namespace kvscope::papers {

/// A value as it was found. NaN where the result does not hold it; then `missing` says why.
struct Measured {
  double value = 0.0;
  double low = 0.0;  // = value where there is no interval
  double high = 0.0;
  std::int64_t rows = 0;     // rows it is made of
  std::int64_t prompts = 0;  // of accuracies; 0 elsewhere
  std::string interval;      // "95 % interval", "range over 8 layers"; empty: none
  bool is_range = false;     // low and high are the extreme rows: no uncertainty of value
  std::string missing;
  bool not_run = false;  // missing, for reasons that lie outside of claim and model
};

/// The result of a run, or null with a sentence that says why there is none.
struct RunResult {
  const ResultView* view = nullptr;
  std::string missing;
  bool not_run = false;  // the system did not let it end (a write, memory)
};
using FindRun = std::function<RunResult(const std::string& run)>;

/// Rows that meet a Value's `where`, "selector=quoka;budget>=256;q_head=" ("q_head=": an empty
/// cell), ascending. Throws ConfigError for a part without a comparison.
std::vector<std::size_t> rows_where(const Table& table, const std::string& where);

/// One Measured per value of the item, in their order.
std::vector<Measured> measure(const Item& item, const FindRun& find_run);

/// What the runs behind an item say against themselves (gates of closed-loop runs): the doubts of
/// the rows that its values read, a sentence each, in the runs' order.
std::vector<std::string> doubts_of(const Item& item, const FindRun& find_run);

/// "87 % [80 %, 92 %]", of a range "0.48, 0.23 to 0.56", "3.42", "1.80x" in the unit of the value;
/// "-" if missing.
std::string number_of(const Measured& measured, Unit unit);
/// One number in a unit, without interval.
std::string plain_number(double x, Unit unit);

}  // namespace kvscope::papers
