// What the device chose, on the host: as lists, and as numbers of keys.
#include <algorithm>
#include <span>

#include "core/cuda/backend_call.hpp"
#include "core/cuda/list_counts.hpp"

namespace kvscope::gpu {

Selection CudaCall::chosen_lists() {
  const DeviceLists& lists = choice_.lists;
  const auto n_owners = static_cast<std::size_t>(lists.n_owners);
  const auto n_blocks = static_cast<std::size_t>(choice_.per_row ? n_tok_ : 1);
  const auto stride = static_cast<std::size_t>(lists.stride);
  const std::size_t n_lists = n_blocks * n_owners;
  constexpr std::size_t kWord = sizeof(std::int32_t);
  auto* const counts =
      reinterpret_cast<std::int32_t*>(work_.host_lists.room(n_lists * (1 + stride) * kWord));
  std::int32_t* const items = counts + n_lists;
  copy_to_host(counts, lists.counts, n_lists * kWord, work_.stream);
  copy_to_host(items, lists.items, n_lists * stride * kWord, work_.stream);
  work_.wait_and_check();
  const Index rows_per_list = choice_.per_row ? 1 : n_tok_;
  Selection selection(
      lists.n_owners == static_cast<int>(config_.n_q) ? ListOwner::q_head : ListOwner::kv_head,
      n_tok_, rows_per_list);
  for (std::size_t owner = 0; owner < n_owners; ++owner) {
    for (std::size_t block = 0; block < n_blocks; ++block) {
      const std::size_t number = block * n_owners + owner;
      const Index end = pos_begin_ + static_cast<Index>(block) + rows_per_list;
      KeyList list;
      for (const std::int32_t item :
           std::span(items + number * stride, static_cast<std::size_t>(counts[number]))) {
        const Index first = Index{item} * lists.page_size;
        for (Index pos = first; pos < std::min(first + lists.page_size, end); ++pos)
          list.scored.push_back(static_cast<KeyPos>(pos));
      }
      for (Index pos = pos_begin_; choice_.adds_own && pos < end; ++pos)
        list.forced.push_back(static_cast<KeyPos>(pos));
      selection.add(list);
    }
  }
  return selection;
}

void CudaCall::count_chosen(Index layer) {
  counted_.push_back({layer, choice_.n_listed});
  if (choice_.n_listed) return;
  const Index n_heads = config_.n_q + config_.n_kv;
  auto* const all = work_.counts.room<std::uint64_t>(config_.n_layers * n_heads, "counts of keys");
  ListCountCall call;
  call.lists = choice_.lists;
  call.adds_own = choice_.adds_own;
  call.n_q = static_cast<int>(config_.n_q);
  call.n_kv = static_cast<int>(config_.n_kv);
  call.pos_begin = static_cast<int>(pos_begin_);
  call.n_tok = n_tok_;
  call.attended = all + static_cast<Index>(counted_.size() - 1) * n_heads;
  call.loaded = call.attended + config_.n_q;
  count_lists(call, work_.stream);
}

ListCounts CudaCall::chosen_counts(Index layer) {
  const auto n_q = static_cast<std::size_t>(config_.n_q);
  const auto n_kv = static_cast<std::size_t>(config_.n_kv);
  const auto found = std::ranges::find(counted_, layer, &Counted::layer);
  if (found->n_listed) {
    const auto n_tok = static_cast<std::uint64_t>(n_tok_);
    const auto n_listed = static_cast<std::uint64_t>(*found->n_listed);
    return {std::vector(n_q, n_tok * n_listed + n_tok * (n_tok + 1) / 2),
            std::vector(n_kv, n_listed + n_tok)};
  }
  const std::size_t n_heads = n_q + n_kv;
  if (const std::size_t n = counted_.size() * n_heads; counts_.size() < n) {
    auto* const counts = work_.counts.room<std::uint64_t>(static_cast<Index>(n), "");
    const std::uint64_t* const fetched = work_.fetch(work_.host_lists, counts, n);
    counts_.assign(fetched, fetched + n);
  }
  const auto of_layer = counts_.begin() + (found - counted_.begin()) * static_cast<Index>(n_heads);
  const auto of_kv = of_layer + static_cast<Index>(n_q);
  return {{of_layer, of_kv}, {of_kv, of_layer + static_cast<Index>(n_heads)}};
}

}  // namespace kvscope::gpu
