// Lists of counts as people write them: "1,16,64", "4k,128k", "4k:1M".
#pragma once

#include <string_view>
#include <vector>

#include "core/base/index.hpp"

namespace kvscope::cli {

/// The numbers of a list, in its order; k = 1024, M = 1024 k. A:B is A, 2A, 4A, ... and B. Throws
/// UsageError, naming the option (without dashes): what is no number of at least 1, a range that
/// does not ascend, a number that is there twice.
std::vector<Index> counts_of(std::string_view list, std::string_view option);

}  // namespace kvscope::cli
