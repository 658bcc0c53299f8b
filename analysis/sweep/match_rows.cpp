#include "analysis/sweep/match_rows.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/base/statistics.hpp"
#include "analysis/sweep/match.hpp"

namespace kvscope {

namespace {

/// The word of a text column; "" where the file has no such words (an empty column of a CSV file).
std::string word_at(const Table& table, std::string_view column, std::size_t row) {
  return table.has_text(column) ? table.text(column).at(row) : std::string();
}

/// What was matched as one: a method, for one cost, on one recording or model.
struct MatchedOne {
  std::string note;
  Mean reached;
  std::vector<std::size_t> rows;
};

}  // namespace

MatchedRows::MatchedRows(const Table& table) {
  if (!table.has_text("match") || !table.has_text("selector")) return;
  const auto reached =
      table.has("match_reached") ? table.numbers("match_reached") : std::span<const double>();
  std::map<std::vector<std::string>, MatchedOne> matched;
  has_no_setting_.resize(table.n_rows());
  why_missed_.resize(table.n_rows());
  for (std::size_t r = 0; r < table.n_rows(); ++r) {
    const std::string target = word_at(table, "match", r);
    if (target.empty()) continue;
    if (std::ranges::find(targets_, target) == targets_.end()) targets_.push_back(target);
    const double cost = reached.empty() ? std::nan("") : reached[r];
    // without a cost it was refused, and is no method without a setting
    has_no_setting_[r] = word_at(table, "knob", r).empty() && !std::isnan(cost);
    MatchedOne& one = matched[{target, word_at(table, "selector", r), word_at(table, "trace", r),
                               word_at(table, "model", r), word_at(table, "task", r)}];
    if (one.note.empty()) one.note = word_at(table, "match_note", r);
    one.reached.add(cost);
    one.rows.push_back(r);
  }
  for (const auto& [key, one] : matched) {
    const double wanted = MatchTarget::parse(key.front()).value;
    if (std::abs(one.reached.value() - wanted) <= kMatchTolerance * wanted) continue;
    for (const std::size_t row : one.rows) why_missed_[row] = one.note;
  }
}

}  // namespace kvscope
