#include "core/attention/selection.hpp"

#include <algorithm>
#include <cmath>

#include "core/attention/list_kernels.hpp"
#include "core/base/error.hpp"

namespace kvscope {

std::vector<KeyPos> ListView::part(std::uint8_t forced_flag) const {
  std::vector<KeyPos> out;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (is_forced[i] == forced_flag) out.push_back(keys[i]);
  }
  return out;
}

Summaries Summaries::clone() const {
  const auto cloned = [](const Tensor<float>& tensor) {
    return tensor.count() == 0 ? Tensor<float>() : tensor.clone();
  };
  return {begin, cloned(k), cloned(v), log_count, cloned(list_share)};
}

Selection Selection::clone() const {
  Selection copy = lists_alone();
  copy.summaries = summaries.clone();
  return copy;
}

Selection Selection::lists_alone() const {
  Selection copy(owner, n_tok, rows_per_list);
  copy.is_dense = is_dense;
  copy.append(*this);
  return copy;
}

void Selection::reserve(std::size_t n_keys) {
  keys_.reserve(n_keys);
  is_forced_.reserve(n_keys);
}

void Selection::add_weights(std::size_t n_before, std::span<const float> weights) {
  if (weights.empty() && log_weight_.empty()) return;
  log_weight_.resize(n_before, 0.0f);
  log_weight_.insert(log_weight_.end(), weights.begin(), weights.end());
  log_weight_.resize(keys_.size(), 0.0f);
}

void Selection::add(const KeyList& list) {
  const std::size_t n_before = keys_.size();
  const auto end = static_cast<std::ptrdiff_t>(n_before);
  const std::size_t n_scored = list.scored.size();
  const std::size_t n_forced = list.forced.size();
  std::vector<float> weights;
  if (n_forced == 0 || n_scored == 0 || list.scored.back() < list.forced.front()) {
    keys_.resize(n_before + n_scored + n_forced);
    is_forced_.resize(keys_.size());
    std::copy(list.forced.begin(), list.forced.end(),
              std::copy(list.scored.begin(), list.scored.end(), keys_.begin() + end));
    const auto flags = is_forced_.begin() + end;
    std::fill_n(flags, n_scored, std::uint8_t{0});
    std::fill_n(flags + static_cast<std::ptrdiff_t>(n_scored), n_forced, std::uint8_t{1});
    weights = list.log_weight;
  } else {
    std::size_t s = 0;
    std::size_t f = 0;
    while (s < n_scored || f < n_forced) {
      const bool takes_scored = f == n_forced || (s < n_scored && list.scored[s] <= list.forced[f]);
      keys_.push_back(takes_scored ? list.scored[s] : list.forced[f]);
      is_forced_.push_back(takes_scored ? 0 : 1);
      if (!list.log_weight.empty()) weights.push_back(takes_scored ? list.log_weight[s] : 0.0f);
      ++(takes_scored ? s : f);
    }
  }
  if (!list.log_weight.empty()) weights.resize(n_scored + n_forced, 0.0f);
  add_weights(n_before, weights);
  begin_.push_back(static_cast<Index>(keys_.size()));
}

void Selection::add(const ListView& list) {
  const std::size_t n_before = keys_.size();
  keys_.insert(keys_.end(), list.keys.begin(), list.keys.end());
  is_forced_.insert(is_forced_.end(), list.is_forced.begin(), list.is_forced.end());
  add_weights(n_before, list.log_weight);
  begin_.push_back(static_cast<Index>(keys_.size()));
}

void Selection::append(const Selection& part) {
  const auto offset = static_cast<Index>(keys_.size());
  keys_.insert(keys_.end(), part.keys_.begin(), part.keys_.end());
  is_forced_.insert(is_forced_.end(), part.is_forced_.begin(), part.is_forced_.end());
  add_weights(static_cast<std::size_t>(offset), part.log_weight_);
  for (std::size_t i = 1; i < part.begin_.size(); ++i) begin_.push_back(offset + part.begin_[i]);
}

void Selection::append(std::span<const Selection* const> parts, const RunTasks& run) {
  std::vector<std::size_t> offsets;
  std::size_t n_keys = keys_.size();
  bool has_weights = !log_weight_.empty();
  for (const Selection* part : parts) {
    offsets.push_back(n_keys);
    n_keys += part->keys_.size();
    has_weights = has_weights || !part->log_weight_.empty();
    for (std::size_t i = 1; i < part->begin_.size(); ++i)
      begin_.push_back(static_cast<Index>(offsets.back()) + part->begin_[i]);
  }
  keys_.resize(n_keys);
  is_forced_.resize(n_keys);
  if (has_weights) log_weight_.resize(n_keys, 0.0f);
  run(static_cast<Index>(parts.size()), [&](Index i) {
    const Selection& part = *parts[static_cast<std::size_t>(i)];
    const auto first = static_cast<std::ptrdiff_t>(offsets[static_cast<std::size_t>(i)]);
    std::copy(part.keys_.begin(), part.keys_.end(), keys_.begin() + first);
    std::copy(part.is_forced_.begin(), part.is_forced_.end(), is_forced_.begin() + first);
    std::copy(part.log_weight_.begin(), part.log_weight_.end(),
              log_weight_.begin() + (part.log_weight_.empty() ? 0 : first));
  });
}

ListView Selection::at(Index index) const {
  const auto first = static_cast<std::size_t>(begin_[static_cast<std::size_t>(index)]);
  const auto size = static_cast<std::size_t>(begin_[static_cast<std::size_t>(index) + 1]) - first;
  ListView list;
  list.keys = std::span(keys_).subspan(first, size);
  list.is_forced = std::span(is_forced_).subspan(first, size);
  if (!log_weight_.empty()) list.log_weight = std::span(log_weight_).subspan(first, size);
  return list;
}

namespace {

/// Ascending without repeats and inside [0, n_keys).
bool is_sound(std::span<const KeyPos> keys, Index n_keys) {
  return keys.empty() || (keys.front() >= 0 && keys.back() < n_keys && is_ascending(keys));
}

[[noreturn]] void throw_unsound(Index list, std::span<const KeyPos> keys, Index n_keys) {
  for (std::size_t j = 0; j < keys.size(); ++j) {
    if (keys[j] < 0 || keys[j] >= n_keys)
      throw ShapeError("selection list {}: key {} is outside [0, {})", list, keys[j], n_keys);
    if (j > 0 && keys[j] <= keys[j - 1]) break;
  }
  const auto at =
      std::adjacent_find(keys.begin(), keys.end(), [](KeyPos a, KeyPos b) { return b <= a; });
  throw ShapeError("selection list {}: key {} after {}: expected ascending keys without repeats",
                   list, *(at + 1), *at);
}

void check_summaries(const Summaries& summaries, Index n_keys) {
  if (summaries.empty()) return;
  const Index n = summaries.begin.back();
  const bool states_share = summaries.has_stated_share();
  const bool has_keys = states_share || (summaries.k.shape().rank == 2 && summaries.k.dim(0) == n &&
                                         static_cast<Index>(summaries.log_count.size()) == n);
  const bool has_values = summaries.v.shape().rank == 2 && summaries.v.dim(0) == n;
  if (!std::is_sorted(summaries.begin.begin(), summaries.begin.end()) ||
      summaries.begin.front() != 0 || !has_keys || !has_values) {
    throw ShapeError(
        "selection: summaries: expected k, v [{}, d_head] and log_count [{}] for {} keys", n, n,
        n_keys);
  }
}

}  // namespace

void check_selection(const Selection& selection, Index n_owners, Index n_keys) {
  if (selection.is_dense) return;
  const Index expected = n_owners * selection.n_row_blocks();
  if (selection.n_lists() != expected) {
    throw ShapeError("selection: expected {} lists ({} owners x {} row blocks), found {}", expected,
                     n_owners, selection.n_row_blocks(), selection.n_lists());
  }
  for (Index i = 0; i < expected; ++i) {
    const ListView list = selection.at(i);
    if (!is_sound(list.keys, n_keys)) throw_unsound(i, list.keys, n_keys);
    for (std::size_t j = 0; j < list.log_weight.size(); ++j) {
      if (!std::isfinite(list.log_weight[j]))
        throw ShapeError("selection list {}: the weight of key {} is not finite", i, list.keys[j]);
    }
  }
  check_summaries(selection.summaries, n_keys);
}

}  // namespace kvscope
