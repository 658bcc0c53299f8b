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
  hand_on(layer, out, /*may_see_nothing=*/false);
  return true;
}

const RemoteRows* CudaCall::remote_rows(Index layer) {
  if (!is_plain(layer)) return nullptr;
  remote_layer_ = layer;
  return this;
}

int CudaCall::longest_of(std::span<const std::span<const KeyPos>> lists) const {
  if (lists.empty()) return static_cast<int>(pos_begin_) + n_tok_;
  std::size_t longest = 0;
  for (const auto list : lists) {
    if (!ends_with_own(list))
      throw ShapeError(
          "a question about keys on the GPU: expected lists that end with the call's own keys, and "
          "found one that does not");
    longest = std::max(longest, list.size());
  }
  return static_cast<int>(longest);
}

template <class T>
std::vector<std::vector<T>> CudaCall::fetch_by_list(
    const T* values, std::int64_t stride, std::span<const std::span<const KeyPos>> lists) const {
  const auto n_kv = static_cast<std::size_t>(config_.n_kv);
  const std::size_t row_bytes = static_cast<std::size_t>(stride) * sizeof(T);
  std::byte* const copied = work_.host_votes.room(n_kv * row_bytes);
  copy_to_host(copied, values, n_kv * row_bytes, work_.stream);
  work_.wait_and_check();
  std::vector<std::vector<T>> rows(n_kv);
  for (std::size_t kv_head = 0; kv_head < n_kv; ++kv_head) {
    rows[kv_head].resize(lists.empty() ? static_cast<std::size_t>(pos_begin_ + n_tok_)
                                       : lists[kv_head].size());
    std::memcpy(rows[kv_head].data(), copied + kv_head * row_bytes,
                rows[kv_head].size() * sizeof(T));
  }
  return rows;
}

std::vector<std::vector<float>> CudaCall::softmax_votes(
    std::span<const std::span<const KeyPos>> lists, Index first_row, Index end_row) const {
  VoteCall call;
  call.rows = rows_of(remote_layer_);
  call.most_keys = longest_of(lists);
  call.first_row = static_cast<int>(first_row);
  call.end_row = static_cast<int>(end_row);
  if (!lists.empty()) call.lists = upload_past(lists);
  const float* const votes = work_.votes.sum(store_.call_shape(), call, work_.stream);
  return fetch_by_list(votes, work_.votes.stride(), lists);
}

std::vector<std::vector<double>> CudaCall::mean_cosines(
    std::span<const std::span<const KeyPos>> lists, bool takes_unit, double eps) const {
  CosineCall call;
  call.rows = rows_of(remote_layer_);
  call.most_keys = longest_of(lists);
  call.takes_unit = takes_unit;
  call.eps = eps;
  if (!lists.empty()) call.lists = upload_past(lists);
  const double* const cosines = work_.key_cosines.compute(store_.call_shape(), call, work_.stream);
  return fetch_by_list(cosines, work_.key_cosines.stride(), lists);
}

}  // namespace kvscope::gpu
