// Numbers of single query heads that a store keeps of a sweep, and what they are for: two methods
// that looked at the same heads are compared head by head.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/study/study_items.hpp"

namespace kvscope {

/// {"mass_mean": [...], "recall10": [...], "output_error_rel": [...]} of the item's rows of heads
/// in layers without a window, in their order, to five digits (null in layers that the method
/// leaves dense there: they are no comparison); null where a command has no such rows.
/// `rows`: "rows" of the command's JSON.
nlohmann::ordered_json heads_of_item(const nlohmann::ordered_json& rows, const StudyItem& item);

/// A metric's mean difference over heads with its 95 % interval, paired.
struct HeadDifference {
  std::string_view column;  // "mass_difference"
  double mean = 0.0;
  double low = 0.0;  // NaN of fewer than two heads
  double high = 0.0;
};

/// `heads` less `against`, both as heads_of_item() wrote them. Empty where one of them is null, or
/// they are not of as many heads.
std::vector<HeadDifference> head_differences(const nlohmann::ordered_json& heads,
                                             const nlohmann::ordered_json& against);

}  // namespace kvscope
