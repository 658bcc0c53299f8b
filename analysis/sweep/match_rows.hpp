// What a table says of equal cost (kvscope sweep --match, simulations with --match): the costs that
// were to be met, and which rows are of a method that met its own.
#pragma once

#include <string>
#include <vector>

#include "analysis/base/table.hpp"

namespace kvscope {

class MatchedRows {
 public:
  /// Of columns match, knob, match_note and match_reached; a table without them, or without a
  /// cost, has no targets.
  explicit MatchedRows(const Table& table);

  /// "density=0.05", in the order of the rows.
  const std::vector<std::string>& targets() const { return targets_; }
  /// True of full attention and other methods that were measured without a setting to turn: they
  /// are there once, under the first cost, and belong beside every cost.
  bool has_no_setting(std::size_t row) const {
    return !has_no_setting_.empty() && has_no_setting_[row];
  }
  /// Why the row's method missed the cost; empty if it met it. Methods are judged by all their rows
  /// of a recording or model: single cells of a closed loop cost a little more or less.
  std::string why_missed(std::size_t row) const {
    return why_missed_.empty() ? std::string() : why_missed_[row];
  }

 private:
  std::vector<std::string> targets_;
  std::vector<bool> has_no_setting_;
  std::vector<std::string> why_missed_;
};

}  // namespace kvscope
