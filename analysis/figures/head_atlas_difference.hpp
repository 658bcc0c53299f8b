// The atlas of differences: a number of every head under two methods, of two models or of two runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/figures/figure_kind.hpp"
#include "analysis/figures/head_measures.hpp"

namespace kvscope::figures {

/// How heads of two results belong together.
enum class HeadMatch {
  place,  // the same layer and head
  maps,   // the head whose small map is most alike, in the layer that matches
};

struct HeadDifference {
  HeadNumbers numbers;   // first - second; NaN where one of the two has none
  std::string sentence;  // what is compared and how heads were matched, for a caption
  HeadMatch match = HeadMatch::place;
  /// Of every head of the first result, by layer and head: the slot (layer * heads + head) of the
  /// head of the second that it is compared with.
  std::vector<std::size_t> partner;
};

/// Of one result with `against`: the losses of two methods. Of two results: `metric` of the first
/// minus that of the second. Empty without either. Throws ConfigError where there is nothing to
/// compare: an unknown method, other layers without maps over the same blocks.
std::optional<HeadDifference> head_difference(const FigureInput& input);

/// "3.5": layer and head of a result's slot.
std::string head_words(const ResultView& result, std::size_t slot);

}  // namespace kvscope::figures
