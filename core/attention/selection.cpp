#include "core/attention/selection.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"

namespace kvscope {

std::vector<KeyPos> merged(const KeyList& list) {
  std::vector<KeyPos> all(list.scored.size() + list.forced.size());
  std::merge(list.scored.begin(), list.scored.end(), list.forced.begin(), list.forced.end(),
             all.begin());
  return all;
}

namespace {

/// Ascending without repeats and inside [0, n_keys).
bool is_sound(const std::vector<KeyPos>& keys, Index n_keys) {
  if (keys.empty()) return true;
  if (keys.front() < 0 || keys.back() >= n_keys) return false;
  KeyPos is_wrong = 0;  // no early exit: the compiler can take several keys at a time
  for (std::size_t j = 1; j < keys.size(); ++j) is_wrong |= keys[j] <= keys[j - 1] ? 1 : 0;
  return is_wrong == 0;
}

/// Both parts sound and without a common key. Selections of one list per row have millions of keys:
/// this looks at them once and copies nothing.
bool is_sound(const KeyList& list, Index n_keys) {
  if (!is_sound(list.scored, n_keys) || !is_sound(list.forced, n_keys)) return false;
  auto forced = list.forced.begin();
  if (list.scored.empty() || forced == list.forced.end() || list.scored.back() < *forced)
    return true;
  for (const KeyPos key : list.scored) {
    while (forced != list.forced.end() && *forced < key) ++forced;
    if (forced != list.forced.end() && *forced == key) return false;
  }
  return true;
}

}  // namespace

void check_selection(const Selection& selection, Index n_owners, Index n_keys) {
  if (selection.is_dense) return;
  const auto expected = static_cast<std::size_t>(n_owners * selection.n_row_blocks());
  if (selection.lists.size() != expected) {
    throw ShapeError(
        fmt::format("selection: expected {} lists ({} owners x {} row blocks), found {}", expected,
                    n_owners, selection.n_row_blocks(), selection.lists.size()));
  }
  for (std::size_t i = 0; i < selection.lists.size(); ++i) {
    if (is_sound(selection.lists[i], n_keys)) continue;
    const std::vector<KeyPos> all = merged(selection.lists[i]);
    for (std::size_t j = 0; j < all.size(); ++j) {
      if (all[j] < 0 || all[j] >= n_keys) {
        throw ShapeError(
            fmt::format("selection list {}: key {} is outside [0, {})", i, all[j], n_keys));
      }
      if (j > 0 && all[j] <= all[j - 1]) {
        throw ShapeError(fmt::format(
            "selection list {}: key {} after {}: expected ascending keys without repeats", i,
            all[j], all[j - 1]));
      }
    }
  }
}

}  // namespace kvscope
