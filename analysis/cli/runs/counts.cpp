#include "analysis/cli/runs/counts.hpp"

#include <algorithm>

#include "analysis/options/exit_code.hpp"
#include "core/base/lists.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::cli {

std::vector<Index> counts_of(std::string_view list, std::string_view option) {
  constexpr Index kMost = Index{1} << 40;
  std::vector<Index> counts;
  for (const std::string& word : split_words(list, ',')) {
    const std::vector<std::string> ends = split_words(word, ':');
    const Index first = count_from(ends.front()).value_or(0);
    const Index last = count_from(ends.back()).value_or(0);
    if (first < 1 || last < 1 || last > kMost || ends.size() > 2) {
      throw UsageError(
          "--{}: expected whole numbers of at least 1 between commas, as 4096, 4k, 1M or 4k:1M, "
          "found \"{}\"",
          option, word);
    }
    if (last < first)
      throw UsageError("--{}: expected a range that ascends, as 4k:1M, found \"{}\"", option, word);
    for (Index n = first; n < last; n *= 2) counts.push_back(n);
    counts.push_back(last);
  }
  for (auto at = counts.begin(); at != counts.end(); ++at) {
    if (std::find(counts.begin(), at, *at) != at)
      throw UsageError("--{}: {} is given twice", option, *at);
  }
  return counts;
}

}  // namespace kvscope::cli
