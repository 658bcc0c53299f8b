// The numbers of each head that figures of `kvscope analyze heads` choose from.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/figures/maps.hpp"

namespace kvscope::figures {

/// One number per layer and query head.
struct HeadNumbers {
  std::string name;   // "retrieval", "lost_mass"
  std::string label;  // of an axis; a loss names its method
  bool is_share = false;
  bool is_difference = false;  // of two such numbers: values have a sign
  std::vector<double> values;  // [layers, heads]
  /// One of them, short.
  std::string words(double value) const;
};

/// A measure by its name (kHeadMeasures) or `lost_mass` under one method: `selector`, as the result
/// spells it, or the first. Throws ConfigError with the names that there are; `option` is what it
/// calls the method.
HeadNumbers read_head_numbers(const ResultView& result, std::string_view name,
                              const std::string& selector, std::string_view option = "selector");

/// All measures that say something, and the loss of every method (of `selector` alone if it is
/// named).
std::vector<HeadNumbers> all_head_numbers(const ResultView& result, const std::string& selector);

}  // namespace kvscope::figures
