// Keys that a call's queries get by position (StreamingLLM), by exact attention (the oracle of
// keys) or by some channels (SparQ): chosen, attended to, and fetched as lists.
#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "core/attention/head_share.hpp"
#include "core/cuda/backend_call.hpp"

namespace kvscope::gpu {

namespace {

constexpr const char* kUse = "lists";

/// Every query's keys as core/selectors/methods/streamingllm.cpp has them.
KeyList stream_of(const ListPlan& plan, Index n_visible) {
  const Index n_sink = std::min(plan.n_sink, n_visible);
  const Index first_recent = std::max(n_sink, n_visible - (plan.budget - n_sink));
  KeyList list;
  list.forced.resize(static_cast<std::size_t>(n_sink + n_visible - first_recent));
  std::iota(list.forced.begin(), list.forced.begin() + n_sink, KeyPos{0});
  std::iota(list.forced.begin() + n_sink, list.forced.end(), static_cast<KeyPos>(first_recent));
  return list;
}

}  // namespace

bool CudaCall::pick(Index layer, const ListPlan& plan) {
  if (plan.by == ListPlan::By::attention) {
    BestKeysOptions options;
    options.budget = static_cast<int>(plan.budget);
    options.owner = plan.owner;
    options.forces_own = plan.forces_own;
    options.joins_rows = plan.joins_rows;
    work_.best_keys.choose(store_.call_shape(), options, rows_of(layer),
                           static_cast<int>(pos_begin_), work_.stream);
  } else if (plan.by == ListPlan::By::channels) {
    const Index n_channels = channels_of(plan.n_channels, plan.channel_share, config_.d_head);
    work_.sparq.choose(store_.call_shape(),
                       {static_cast<int>(plan.budget), static_cast<int>(n_channels)},
                       rows_of(layer), static_cast<int>(pos_begin_), work_.stream);
  } else if (plan.by != ListPlan::By::place) {
    return false;
  } else if (n_tok_ == 1 && streamed_ != plan) {
    // one list for all KV heads and layers
    const KeyList list = stream_of(plan, pos_begin_ + 1);
    const std::vector<std::int32_t> counts(static_cast<std::size_t>(config_.n_kv),
                                           static_cast<std::int32_t>(list.size()));
    stream_keys_ =
        work_.stream_keys.upload(list.forced.data(), list.forced.size(), kUse, work_.stream);
    stream_counts_ = work_.stream_counts.upload(counts.data(), counts.size(), kUse, work_.stream);
    streamed_ = plan;
  }
  picked_ = plan;
  return true;
}

DeviceLists CudaCall::picked_on_device() const {
  return picked_->by == ListPlan::By::channels ? work_.sparq.lists() : work_.best_keys.lists();
}

void CudaCall::attend_picked(Index layer, Block& out) {
  const bool is_stream = picked_->by == ListPlan::By::place;
  const DeviceLists lists = is_stream ? DeviceLists{stream_keys_, stream_counts_, /*stride=*/0,
                                                    static_cast<int>(config_.n_kv), /*page_size=*/1}
                                      : picked_on_device();
  if (n_tok_ == 1 || picked_->joins_rows) {
    const OwnKeys own = picked_->forces_own ? OwnKeys::causal : OwnKeys::in_list;
    gpu::attend(store_.call_shape(), rows_of(layer), lists, answer_, lse_, {own}, work_.stream);
    hand_on(layer, out, /*may_see_nothing=*/false);  // there is always a key, or the own one
    return;
  }
  if (is_stream && store_.dtype() == DType::f32) {
    const AttendRule window{.window = static_cast<int>(picked_->budget - picked_->n_sink),
                            .n_first = static_cast<int>(picked_->n_sink)};
    attend_densely(store_.call_shape(), rows_of(layer), answer_, lse_, work_.stream, window);
    hand_on(layer, out, /*may_see_nothing=*/false);
    return;
  }
  AnyAttention call = any_attention(layer, out);
  if (is_stream) {
    call.n_first = picked_->n_sink;
    call.window = picked_->budget - picked_->n_sink;
  } else {
    call.lists.keys = lists.items;
    call.lists.counts = lists.counts;
    call.lists.stride = lists.stride;
    call.lists.n_owners = lists.n_owners;
    call.lists.heads_per_owner = static_cast<int>(config_.n_q) / lists.n_owners;
    call.lists.adds_own = picked_->forces_own;
  }
  attend_any(call, work_.stream);
}

Selection CudaCall::picked_lists() {
  if (picked_->by == ListPlan::By::place) {
    Selection selection(ListOwner::layer, n_tok_, /*list_rows=*/1);
    for (Index row = 0; row < n_tok_; ++row)
      selection.add(stream_of(*picked_, pos_begin_ + row + 1));
    return selection;
  }
  const DeviceLists lists = picked_on_device();
  const auto n_owners = static_cast<std::size_t>(lists.n_owners);
  const auto n_blocks = static_cast<std::size_t>(picked_->joins_rows ? 1 : n_tok_);
  const auto stride = static_cast<std::size_t>(lists.stride);
  const std::size_t n_lists = n_blocks * n_owners;
  constexpr std::size_t kWord = sizeof(std::int32_t);
  auto* const fetched =
      reinterpret_cast<std::int32_t*>(work_.host_lists.room(n_lists * (1 + stride) * kWord));
  copy_to_host(fetched, lists.counts, n_lists * kWord, work_.stream);
  copy_to_host(fetched + n_lists, lists.items, n_lists * stride * kWord, work_.stream);
  work_.wait_and_check();
  const std::span counts(fetched, n_lists);
  const std::span items(fetched + n_lists, n_lists * stride);
  const bool is_per_head = picked_->owner == ListPlan::Owner::q_head;
  Selection selection(is_per_head ? ListOwner::q_head : ListOwner::kv_head, n_tok_,
                      picked_->joins_rows ? n_tok_ : 1);
  for (std::size_t owner = 0; owner < n_owners; ++owner) {
    for (std::size_t block = 0; block < n_blocks; ++block) {
      const std::size_t number = block * n_owners + owner;
      const auto first = items.begin() + static_cast<std::ptrdiff_t>(number * stride);
      KeyList list;
      list.scored.assign(first, first + counts[number]);
      const Index end =
          picked_->joins_rows ? pos_begin_ + n_tok_ : pos_begin_ + static_cast<Index>(block) + 1;
      for (Index pos = pos_begin_; picked_->forces_own && pos < end; ++pos)
        list.forced.push_back(static_cast<KeyPos>(pos));
      selection.add(list);
    }
  }
  return selection;
}

}  // namespace kvscope::gpu
