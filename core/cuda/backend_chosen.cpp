// What the device chose, on the host: as lists, and as numbers of keys.
#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "core/cuda/backend_call.hpp"
#include "core/cuda/list_counts.hpp"

namespace kvscope::gpu {

KeyList stream_of(const ListPlan& plan, Index n_visible) {
  const Index n_sink = std::min(plan.n_sink, n_visible);
  const Index first_recent = std::max(n_sink, n_visible - (plan.budget - n_sink));
  KeyList list;
  list.forced.resize(static_cast<std::size_t>(n_sink + n_visible - first_recent));
  std::iota(list.forced.begin(), list.forced.begin() + n_sink, KeyPos{0});
  std::iota(list.forced.begin() + n_sink, list.forced.end(), static_cast<KeyPos>(first_recent));
  return list;
}

Selection CudaCall::chosen_lists() {
  if (picked_ && picked_->by == ListPlan::By::place) {
    Selection selection(ListOwner::layer, n_tok_, /*list_rows=*/1);
    for (Index row = 0; row < n_tok_; ++row)
      selection.add(stream_of(*picked_, pos_begin_ + row + 1));
    return selection;
  }
  const DeviceLists& lists = choice_.lists;
  const auto n_owners = static_cast<std::size_t>(lists.n_owners);
  const auto n_blocks = static_cast<std::size_t>(choice_.per_row ? n_tok_ : 1);
  const auto stride = static_cast<std::size_t>(lists.stride);
  const std::size_t n_lists = n_blocks * n_owners;
  constexpr std::size_t kWord = sizeof(std::int32_t);
  auto* const fetched =
      reinterpret_cast<std::int32_t*>(work_.host_lists.room(n_lists * (1 + stride) * kWord));
  copy_to_host(fetched, lists.counts, n_lists * kWord, work_.stream);
  copy_to_host(fetched + n_lists, lists.items, n_lists * stride * kWord, work_.stream);
  work_.wait_and_check();
  const Index rows_per_list = choice_.per_row ? 1 : n_tok_;
  Selection selection(
      lists.n_owners == static_cast<int>(config_.n_q) ? ListOwner::q_head : ListOwner::kv_head,
      n_tok_, rows_per_list);
  for (std::size_t owner = 0; owner < n_owners; ++owner) {
    for (std::size_t block = 0; block < n_blocks; ++block) {
      const std::size_t number = block * n_owners + owner;
      const Index end = pos_begin_ + static_cast<Index>(block) + rows_per_list;
      const std::span items(fetched + n_lists + number * stride,
                            static_cast<std::size_t>(fetched[number]));
      KeyList list;
      for (const std::int32_t item : items) {
        const Index first = Index{item} * lists.page_size;
        for (Index pos = first; pos < std::min(first + lists.page_size, end); ++pos) {
          const bool is_forced = picked_ && is_kept_by_rule(*picked_, pos, end - 1, pos_begin_);
          (is_forced ? list.forced : list.scored).push_back(static_cast<KeyPos>(pos));
        }
      }
      for (Index pos = pos_begin_; choice_.adds_own && pos < end; ++pos)
        list.forced.push_back(static_cast<KeyPos>(pos));
      selection.add(list);
    }
  }
  if (picked_ && picked_->adds_mean) add_means(selection);
  return selection;
}

void CudaCall::add_means(Selection& selection) {
  Summaries& to = selection.summaries;
  to.v = Tensor<float>({config_.n_kv, config_.d_head});
  to.list_share = Tensor<float>({config_.n_q, Index{n_tok_}});
  for (Index i = 0; i <= config_.n_kv; ++i) to.begin.push_back(i);
  const std::span values = to.v.flat();
  const std::span shares = to.list_share.flat();
  auto* const fetched = reinterpret_cast<float*>(
      work_.host_lists.room((values.size() + shares.size()) * sizeof(float)));
  copy_to_host(fetched, means_, values.size_bytes(), work_.stream);
  copy_to_host(fetched + values.size(), work_.sparq.shares(), shares.size_bytes(), work_.stream);
  work_.wait_and_check();
  std::copy_n(fetched, values.size(), values.begin());
  std::copy_n(fetched + values.size(), shares.size(), shares.begin());
}

void CudaCall::count_chosen(Index layer) {
  const Index n_heads = config_.n_q + config_.n_kv;
  auto* const all = work_.counts.room<std::uint64_t>(config_.n_layers * n_heads, "counts of keys");
  ListCountCall call;
  call.lists = choice_.lists;
  call.adds_own = choice_.adds_own;
  call.n_q = static_cast<int>(config_.n_q);
  call.n_kv = static_cast<int>(config_.n_kv);
  call.pos_begin = static_cast<int>(pos_begin_);
  call.n_tok = n_tok_;
  call.attended = all + static_cast<Index>(counted_.size()) * n_heads;
  call.loaded = call.attended + config_.n_q;
  count_lists(call, work_.stream);
  counted_.push_back(layer);
}

ListCounts CudaCall::chosen_counts(Index layer) {
  const auto n_q = static_cast<std::size_t>(config_.n_q);
  const std::size_t n_heads = n_q + static_cast<std::size_t>(config_.n_kv);
  if (const std::size_t n = counted_.size() * n_heads; counts_.size() < n) {
    const std::size_t bytes = n * sizeof(std::uint64_t);
    auto* const fetched = reinterpret_cast<std::uint64_t*>(work_.host_lists.room(bytes));
    copy_to_host(fetched, work_.counts.room<std::uint64_t>(static_cast<Index>(n), ""), bytes,
                 work_.stream);
    work_.wait_and_check();
    counts_.assign(fetched, fetched + n);
  }
  const auto found = std::ranges::find(counted_, layer);
  const auto of_layer = counts_.begin() + (found - counted_.begin()) * static_cast<Index>(n_heads);
  const auto of_kv = of_layer + static_cast<Index>(n_q);
  return {{of_layer, of_kv}, {of_kv, of_layer + static_cast<Index>(n_heads)}};
}

}  // namespace kvscope::gpu
