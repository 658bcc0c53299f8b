// Lists that the host made, one per KV head or query head for the whole call.
#include <algorithm>
#include <vector>

#include "core/cuda/backend_call.hpp"

namespace kvscope::gpu {

bool CudaCall::ends_with_own(std::span<const KeyPos> list) const {
  const auto n_own = static_cast<std::size_t>(n_tok_);
  return list.size() >= n_own && list[list.size() - n_own] == pos_begin_;  // lists ascend
}

DeviceLists CudaCall::upload_past(std::span<const std::span<const KeyPos>> lists) const {
  constexpr const char* kUse = "lists";
  std::size_t most = 1;  // there is always something to point to
  std::vector<std::int32_t> counts;
  for (const auto list : lists) {
    const std::size_t n_past = list.size() - static_cast<std::size_t>(n_tok_);
    counts.push_back(static_cast<std::int32_t>(n_past));
    most = std::max(most, n_past);
  }
  std::vector<std::int32_t> items(lists.size() * most);
  for (std::size_t i = 0; i < lists.size(); ++i) {
    std::copy_n(lists[i].begin(), counts[i], items.begin() + static_cast<std::ptrdiff_t>(i * most));
  }
  DeviceLists past;
  past.items = work_.past_items.upload(items.data(), items.size(), kUse, work_.stream);
  past.counts = work_.past_counts.upload(counts.data(), counts.size(), kUse, work_.stream);
  past.stride = static_cast<int>(most);
  past.n_owners = static_cast<int>(lists.size());
  return past;
}

bool CudaCall::attend_shared_lists(Index layer, const Selection& selection, Block& out) {
  if (selection.n_row_blocks() != 1 || !selection.log_weights().empty() ||
      !selection.summaries.empty())
    return false;
  auto rule = rule_of(layer);
  if (!rule) return false;
  rule->window = 0;  // lists are within it
  std::vector<std::span<const KeyPos>> lists;
  for (Index i = 0; i < selection.n_lists(); ++i) {
    lists.push_back(selection.at(i).keys);
    if (!ends_with_own(lists.back())) return false;
  }
  // a layer's list is every KV head's
  while (selection.owner == ListOwner::layer && static_cast<Index>(lists.size()) < config_.n_kv)
    lists.push_back(lists.front());
  gpu::attend(store_.call_shape(), rows_of(layer), upload_past(lists), answer_, lse_,
              {.rule = *rule}, work_.stream);
  hand_on(layer, out);
  return true;
}

}  // namespace kvscope::gpu
