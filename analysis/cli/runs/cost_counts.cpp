#include "analysis/cli/runs/cost_counts.hpp"

#include "analysis/options/exit_code.hpp"
#include "core/base/index.hpp"
#include "core/base/lists.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::cli {

namespace {

constexpr Index kMostCount = Index{1} << 40;

std::optional<double> length_from(std::string_view word) {
  const auto n = count_from(word);
  if (!n || *n < 1 || *n > kMostCount) return std::nullopt;
  return static_cast<double>(*n);
}

}  // namespace

std::vector<double> counts_of(std::string_view list, std::string_view option) {
  std::vector<double> counts;
  if (list.empty()) return counts;
  for (const std::string& word : split_words(list, ',')) {
    const std::vector<std::string> ends = split_words(word, ':');
    const auto first = length_from(ends.front());
    const auto last = length_from(ends.back());
    if (!first || !last || ends.size() > 2) {
      throw UsageError(
          "--{}: expected numbers of at least 1, as 4096, 4k, 1M or 4k:1M, found \"{}\"", option,
          word);
    }
    if (*last < *first)
      throw UsageError("--{}: expected a range that ascends, as 4k:1M, found \"{}\"", option, word);
    for (double n = *first; n < *last; n *= 2.0) counts.push_back(n);
    counts.push_back(*last);
  }
  return counts;
}

}  // namespace kvscope::cli
