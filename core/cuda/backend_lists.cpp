// Lists that the host made, one per KV head or query head for the whole call, and what evicting
// methods ask about a layer: queries and keys stay on the device.
#include <algorithm>
#include <cstring>
#include <vector>

#include "core/base/error.hpp"
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
  std::vector<std::span<const KeyPos>> lists;
  for (Index i = 0; i < selection.n_lists(); ++i) {
    lists.push_back(selection.at(i).keys);
    if (!ends_with_own(lists.back())) return false;
  }
  // a layer's list is every KV head's
  while (selection.owner == ListOwner::layer && static_cast<Index>(lists.size()) < config_.n_kv)
    lists.push_back(lists.front());
  gpu::attend(store_.call_shape(), rows_of(layer), upload_past(lists), answer_, lse_,
              AttendOptions{}, work_.stream);
  hand_on(layer, out, /*may_see_nothing=*/false);
  return true;
}

const RemoteRows* CudaCall::remote_rows(Index layer) {
  if (!is_plain(layer)) return nullptr;
  remote_layer_ = layer;
  return this;
}

std::vector<std::vector<float>> CudaCall::softmax_votes(
    std::span<const std::span<const KeyPos>> lists, Index first_row, Index end_row) const {
  const Index n_context = pos_begin_ + n_tok_;
  VoteCall call;
  call.rows = rows_of(remote_layer_);
  call.first_row = static_cast<int>(first_row);
  call.end_row = static_cast<int>(end_row);
  call.most_keys = static_cast<int>(lists.empty() ? n_context : 0);
  for (const auto list : lists) {
    if (!ends_with_own(list))
      throw ShapeError("votes on the GPU: expected a list that ends with the call's own keys");
    call.most_keys = std::max(call.most_keys, static_cast<int>(list.size()));
  }
  if (!lists.empty()) call.lists = upload_past(lists);
  const float* const found = work_.votes.sum(store_.call_shape(), call, work_.stream);
  const auto stride = static_cast<std::size_t>(work_.votes.stride());
  const auto n_kv = static_cast<std::size_t>(config_.n_kv);
  std::byte* const copied = work_.host_votes.room(n_kv * stride * sizeof(float));
  copy_to_host(copied, found, n_kv * stride * sizeof(float), work_.stream);
  work_.wait_and_check();
  std::vector<std::vector<float>> votes(n_kv);
  for (std::size_t kv_head = 0; kv_head < n_kv; ++kv_head) {
    votes[kv_head].resize(lists.empty() ? static_cast<std::size_t>(n_context)
                                        : lists[kv_head].size());
    std::memcpy(votes[kv_head].data(), copied + kv_head * stride * sizeof(float),
                votes[kv_head].size() * sizeof(float));
  }
  return votes;
}

}  // namespace kvscope::gpu
