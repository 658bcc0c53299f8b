// Which keys two methods share in every head, for the atlas of heads: numbers of `kvscope analyze
// overlap`.
#pragma once

#include <optional>
#include <string>

#include "analysis/figures/figure_kind.hpp"
#include "analysis/figures/head_measures.hpp"

namespace kvscope::figures {

/// A number of two methods in every head of an atlas.
struct HeadOverlap {
  HeadNumbers numbers;   // NaN where the overlap does not have the head
  std::string sentence;  // what it is, for a caption
};

/// Of a second result of kind overlap; empty without one. `metric` is jaccard (without one),
/// shared_mass, first_mass or second_mass; `selector` and `against` name the couple, in either
/// order, else it is the first. Throws ConfigError for a metric or couple that there is not.
std::optional<HeadOverlap> head_overlap(const FigureInput& input);

/// The place of a couple in the summary of an overlap, and whether it stands there the other way
/// round; empty names stand for any. Throws ConfigError with the couples that there are.
struct CoupleSlot {
  std::size_t slot = 0;
  bool is_swapped = false;
};
CoupleSlot find_couple(const ResultView& overlap, const std::string& first,
                       const std::string& second);

}  // namespace kvscope::figures
