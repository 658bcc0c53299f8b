#include "core/attention/selection.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"

namespace kvscope {

std::vector<KeyPos> merged(const KeyList& list) {
  std::vector<KeyPos> all(list.scored.size() + list.forced.size());
  std::merge(list.scored.begin(), list.scored.end(), list.forced.begin(), list.forced.end(), all.begin());
  return all;
}

void check_selection(const Selection& selection, Index n_owners, Index n_keys) {
  if (selection.is_dense) return;
  const auto expected = static_cast<std::size_t>(n_owners * selection.n_row_blocks());
  if (selection.lists.size() != expected) {
    throw ShapeError(fmt::format("selection: expected {} lists ({} owners x {} row blocks), found {}", expected,
                                 n_owners, selection.n_row_blocks(), selection.lists.size()));
  }
  for (std::size_t i = 0; i < selection.lists.size(); ++i) {
    const std::vector<KeyPos> all = merged(selection.lists[i]);
    for (std::size_t j = 0; j < all.size(); ++j) {
      if (all[j] < 0 || all[j] >= n_keys) {
        throw ShapeError(fmt::format("selection list {}: key {} is outside [0, {})", i, all[j], n_keys));
      }
      if (j > 0 && all[j] <= all[j - 1]) {
        throw ShapeError(fmt::format("selection list {}: key {} after {}: expected ascending keys without repeats", i,
                                     all[j], all[j - 1]));
      }
    }
  }
}

}  // namespace kvscope
