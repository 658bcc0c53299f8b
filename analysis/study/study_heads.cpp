#include "analysis/study/study_heads.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "analysis/base/paired_numbers.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/study/study_table.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"
#include "core/base/number_text.hpp"

namespace kvscope {

namespace {

/// What of a head is kept, and what a difference of it is called.
constexpr std::pair<const char*, std::string_view> kHeadColumns[] = {
    {"mass_mean", "mass_difference"},
    {"recall10", "recall10_difference"},
    {"output_error_rel", "output_error_rel_difference"}};

/// Five digits: a store holds many heads, and no difference that counts lies below them.
Json short_number(const Json& number) {
  if (!number.is_number()) return nullptr;
  const auto rounded = number_from<double>(fmt::format("{:.5g}", number.get<double>()));
  return or_null(rounded);
}

/// Differences where both have a number.
std::vector<double> differences_by_head(const Json& a, const Json& b) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].is_number() && b[i].is_number())
      differences.push_back(a[i].get<double>() - b[i].get<double>());
  }
  return differences;
}

}  // namespace

Json heads_of_item(const Json& rows, const StudyItem& item) {
  Json heads;
  for (const Json& row : rows) {
    if (!row.contains("q_head") || row.at("q_head").is_null() || !is_answer(row, item)) continue;
    const auto window = row.find("window");
    if (window != row.end() && window->is_number() && *window != 0) continue;
    const auto dense = row.find("dense");
    const bool is_dense = dense != row.end() && dense->is_number() && *dense != 0;
    for (const auto& [column, difference] : kHeadColumns)
      heads[column].push_back(row.contains(column) && !is_dense ? short_number(row.at(column))
                                                                : Json(nullptr));
  }
  return heads;
}

std::vector<HeadDifference> head_differences(const Json& heads, const Json& against) {
  std::vector<HeadDifference> list;
  if (!heads.is_object() || !against.is_object()) return list;
  for (const auto& [column, name] : kHeadColumns) {
    if (!heads.contains(column) || !against.contains(column)) continue;
    if (heads.at(column).size() != against.at(column).size()) continue;
    const std::vector<double> differences =
        differences_by_head(heads.at(column), against.at(column));
    if (differences.empty()) continue;
    const bool are_equal = std::ranges::all_of(differences, [](double d) { return d == 0.0; });
    Interval interval{are_equal ? 0.0 : kNan, are_equal ? 0.0 : kNan};
    if (differences.size() > 1 && !are_equal) interval = paired_interval(differences, 0.95);
    list.push_back({name, mean(differences), interval.low, interval.high});
  }
  return list;
}

}  // namespace kvscope
