#include "analysis/simulate/gates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/escape.hpp"
#include "core/selectors/method_spec.hpp"

namespace kvscope {

namespace {

using JudgedRows = std::span<const JudgedRow>;
using RowList = std::vector<std::size_t>;

bool is_dense_row(const JudgedRow& row) {
  return row.selector == "full";
}

bool is_ranked_row(const JudgedRow& row) {
  return !is_dense_row(row) && !is_oracle(row.selector);
}

std::string row_name(const JudgedRow& row) {
  return std::isnan(row.budget)
             ? row.selector
             : fmt::format("{} {}={:g}", row.selector, row.budget_kind, row.budget);
}

std::string value_text(const JudgedRow& row) {
  return row.shown.empty() ? fmt::format("{:.1f} %", 100.0 * row.mean) : row.shown;
}

/// Of a test that resamples, 0 says no more than that none of its resamples spoke against it.
std::string p_text(double p) {
  if (std::isnan(p)) return "not tested";
  return p > 0.0 ? fmt::format("p = {:.2g}", p)
                 : fmt::format("p < {:.2g}", 2.0 / static_cast<double>(kIntervalResamples));
}

std::string chance_words(double p) {
  if (std::isnan(p)) return p_text(p);
  return fmt::format("{}, {}", p < kRankedLevel ? "beyond chance" : "which chance does too",
                     p_text(p));
}

/// Rows of each cell, cells in the order in which they come.
std::vector<std::pair<std::string, RowList>> cells_of(JudgedRows rows) {
  std::vector<std::pair<std::string, RowList>> cells;
  std::map<std::string, std::size_t> place;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto [found, is_new] = place.try_emplace(rows[r].cell, cells.size());
    if (is_new) cells.push_back({rows[r].cell, {}});
    cells[found->second].second.push_back(r);
  }
  return cells;
}

/// One cell and what is found in it.
class CellJudge {
 public:
  CellJudge(JudgedRows rows, const std::string& cell, const RowList& members, const RowTest& test,
            std::vector<Doubt>& doubts)
      : rows_(rows), cell_(cell), members_(members), test_(test), doubts_(doubts) {}

  void judge() {
    const auto dense = std::find_if(members_.begin(), members_.end(),
                                    [&](std::size_t r) { return is_dense_row(rows_[r]); });
    if (dense != members_.end()) {
      if (rows_[*dense].is_share && !(rows_[*dense].mean >= kDenseSolves)) {
        add(kDenseCannot, members_,
            fmt::format("the dense model itself reaches {}: a method's drop says nothing",
                        value_text(rows_[*dense])));
      }
      judge_saturation(*dense);
      judge_above_dense(*dense);
    }
    judge_choices();
    judge_budgets();
    judge_ranking();
  }

 private:
  void add(std::string_view gate, RowList rows, const std::string& sentence) {
    doubts_.push_back({gate, cell_, std::move(rows), fmt::format("{}: {}", cell_, sentence)});
  }

  void judge_saturation(std::size_t dense) {
    const bool all_right = std::all_of(members_.begin(), members_.end(), [&](std::size_t r) {
      return rows_[r].is_share && rows_[r].mean == 1.0;
    });
    if (all_right && members_.size() > 1) {
      add(kSaturated, members_,
          fmt::format(
              "saturated: {} and all other methods at 100 %, so that nothing is told apart; "
              "smaller budgets or harder prompts would",
              rows_[dense].selector));
    }
  }

  void judge_above_dense(std::size_t dense) {
    for (const std::size_t r : members_) {
      if (is_dense_row(rows_[r]) || !(rows_[r].mean > rows_[dense].mean)) continue;
      const PairedTest test = test_(r, dense);
      if (!(test.difference > 0.0 && test.p < kAboveDenseLevel)) continue;
      add(kSparseAboveDense, {r},
          fmt::format("{} with {} is better than the dense model with {} beyond chance ({}): "
                      "the task rewards what the model does not do by itself",
                      row_name(rows_[r]), value_text(rows_[r]), value_text(rows_[dense]),
                      p_text(test.p)));
    }
  }

  void judge_choices() {
    RowList idle;
    std::string names;
    for (const std::size_t r : members_) {
      if (is_dense_row(rows_[r]) || rows_[r].kv_reduction != 0.0) continue;
      idle.push_back(r);
      names += (names.empty() ? "" : ", ") + row_name(rows_[r]);
    }
    if (idle.empty()) return;
    add(kNothingChosen, idle,
        fmt::format("{} attended to every key, as the dense model does: no context was longer than "
                    "the budget, the method chooses in another phase, or all layers have a window",
                    names));
  }

  void judge_budgets() {
    for (const std::size_t small : members_) {
      for (const std::size_t large : members_) {
        const JudgedRow& a = rows_[small];
        const JudgedRow& b = rows_[large];
        if (a.selector != b.selector || a.budget_kind != b.budget_kind || !(a.budget < b.budget) ||
            !(b.mean < a.mean)) {
          continue;
        }
        const PairedTest test = test_(small, large);
        add(kMoreBudgetWorse, {small, large},
            fmt::format("{} has {} and with more, {}={:g}, only {} ({})", row_name(a),
                        value_text(a), b.budget_kind, b.budget, value_text(b),
                        chance_words(test.p)));
      }
    }
  }

  /// The best of each budget against every other that it would be printed above.
  void judge_ranking() {
    std::map<std::pair<std::string, double>, RowList> rounds;
    RowList of_any;  // methods without a budget compete in every round
    for (const std::size_t r : members_) {
      if (!is_ranked_row(rows_[r])) continue;
      if (std::isnan(rows_[r].budget)) {
        of_any.push_back(r);
      } else {
        rounds[{rows_[r].budget_kind, rows_[r].budget}].push_back(r);
      }
    }
    if (rounds.empty()) rounds[{"", 0.0}] = {};
    for (auto& [budget, round] : rounds) {
      round.insert(round.end(), of_any.begin(), of_any.end());
      if (round.size() < 2) continue;
      const std::size_t best = *std::max_element(
          round.begin(), round.end(),
          [&](std::size_t a, std::size_t b) { return rows_[a].mean < rows_[b].mean; });
      RowList unclear;
      std::string names;
      Index n = 0;
      for (const std::size_t r : round) {
        if (!(rows_[r].mean < rows_[best].mean)) continue;
        const PairedTest test = test_(best, r);
        if (test.p < kRankedLevel) continue;
        unclear.push_back(r);
        n = test.n;
        names += fmt::format("{}{} ({}, {})", names.empty() ? "" : ", ", row_name(rows_[r]),
                             value_text(rows_[r]), p_text(test.p));
      }
      if (unclear.empty()) continue;
      // who ties with the best is no more its better than the best is
      for (const std::size_t r : round) {
        if (rows_[r].mean == rows_[best].mean) unclear.push_back(r);
      }
      std::sort(unclear.begin(), unclear.end());
      add(kTooFewTrials, unclear,
          fmt::format("{} trial{} not tell the best, {} ({}), from {}", n,
                      n == 1 ? " does" : "s do", row_name(rows_[best]), value_text(rows_[best]),
                      names));
    }
  }

  JudgedRows rows_;
  const std::string& cell_;
  const RowList& members_;
  const RowTest& test_;
  std::vector<Doubt>& doubts_;
};

}  // namespace

std::vector<Doubt> find_doubts(std::span<const JudgedRow> rows, const RowTest& test) {
  std::vector<Doubt> doubts;
  for (const auto& [cell, members] : cells_of(rows))
    CellJudge(rows, cell, members, test, doubts).judge();
  return doubts;
}

std::vector<std::string> doubt_words(const std::vector<Doubt>& doubts, std::size_t n_rows) {
  std::vector<std::vector<std::string_view>> gates(n_rows);
  for (const Doubt& doubt : doubts) {
    for (const std::size_t row : doubt.rows) {
      auto& own = gates.at(row);
      if (std::find(own.begin(), own.end(), doubt.gate) == own.end()) own.push_back(doubt.gate);
    }
  }
  std::vector<std::string> words;
  for (const auto& own : gates) words.push_back(fmt::format("{}", fmt::join(own, "+")));
  return words;
}

nlohmann::ordered_json doubts_json(const std::vector<Doubt>& doubts) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Doubt& doubt : doubts) {
    list.push_back({{"gate", std::string(doubt.gate)},
                    {"cell", clean_text(doubt.cell)},
                    {"rows", doubt.rows},
                    {"sentence", clean_text(doubt.sentence)}});
  }
  return list;
}

}  // namespace kvscope
