// How S_q goes with the largest attention weight of a query: plain, by ranks, and with what the
// position explains taken out of both.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace kvscope {

/// The coefficients, each in [-1, 1] or NaN (see statistics.hpp for when). S_q and the weight both
/// change with the position (a later query sees more keys, so its largest weight is smaller): only
/// the partial coefficients say what is left of the relation at equal position.
struct QueryCorrelation {
  static constexpr std::array<std::string_view, 5> kNames = {"pearson", "pearson_log", "spearman",
                                                             "partial_pearson", "partial_spearman"};
  static constexpr std::array<std::string_view, 5> kTexts = {
      "Pearson of S_q and the largest weight", "Pearson of S_q and the log of the largest weight",
      "Spearman of S_q and the largest weight",
      "partial Pearson of S_q and the log of the largest weight, given the position",
      "partial Spearman of S_q and the largest weight, given the position"};
  std::array<double, 5> value{};  // in the order of kNames

  double pearson() const { return value[0]; }
  double pearson_log() const { return value[1]; }
  double spearman() const { return value[2]; }
  double partial_pearson() const { return value[3]; }
};

/// All coefficients of s_q [n] and log_weight [n] (natural log, never exp'd where the log is
/// wanted); `position` [n]: what the partial ones hold fixed. Entries with NaN are left out.
QueryCorrelation correlate_queries(std::span<const double> s_q, std::span<const double> log_weight,
                                   std::span<const double> position);

}  // namespace kvscope
