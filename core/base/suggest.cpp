#include "core/base/suggest.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvscope {

namespace {

/// A word that differs in case alone is meant.
std::string in_lower_case(std::string_view word) {
  std::string lower(word);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

/// Edits (insert, delete, replace, swap of neighbours) that turn one word into the other.
int edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = static_cast<int>(i + j);
        continue;
      }
      const int replace = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& known,
                                   std::optional<int> most_edits) {
  std::optional<std::string> best;
  int best_distance = most_edits.value_or(std::max(1, static_cast<int>(word.size()) / 3)) + 1;
  if (word.size() > 64) return best;  // nobody's typing error; spares the table
  const std::string typed = in_lower_case(word);
  for (const auto& candidate : known) {
    const std::string name = in_lower_case(candidate);
    int distance = edit_distance(typed, name);
    if (typed != name && word.size() >= 3 && name.size() >= 3 &&
        (name.starts_with(typed) || typed.starts_with(name)))
      distance = 1;
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known,
                         std::string_view prefix) {
  const auto found = nearest(word, known);
  return found ? fmt::format(". Did you mean {}{}?", prefix, *found) : "";
}

}  // namespace kvscope
