// What the runs behind an item say against themselves: the gates of closed-loop runs.
#pragma once

#include <string>
#include <vector>

#include "analysis/papers/measure.hpp"

namespace kvscope::papers {

/// The doubts of the rows that the item's values read, a sentence each, in the runs' order.
std::vector<std::string> doubts_of(const Item& item, const FindRun& find_run);

}  // namespace kvscope::papers
