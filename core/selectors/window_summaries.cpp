#include "core/selectors/window_summaries.hpp"

#include <algorithm>
#include <cmath>

namespace kvscope {

namespace {

/// Which positions are alive and in no list of the KV head. [n_ctx]
std::vector<std::uint8_t> left_out(const SelectCall& call, const Selection& selection,
                                   Index kv_head) {
  std::vector<std::uint8_t> is_out(static_cast<std::size_t>(call.k.dim(1)), 0);
  for (std::size_t pos = 0; pos < is_out.size(); ++pos)
    is_out[pos] = is_alive(call, kv_head, static_cast<Index>(pos)) ? 1 : 0;
  for (Index block = 0; block < selection.n_row_blocks(); ++block) {
    for (const KeyPos pos : selection.at(kv_head * selection.n_row_blocks() + block).keys)
      is_out[static_cast<std::size_t>(pos)] = 0;
  }
  return is_out;
}

}  // namespace

Summaries summaries_of_left_out(const SelectCall& call, const Selection& selection,
                                std::span<const KeyPools* const> keys,
                                std::span<const KeyPools* const> values) {
  struct Window {
    Index index;
    Index n_out;
  };
  const Index n_kv = call.k.dim(0);
  const Index d = call.k.dim(2);
  std::vector<std::vector<Window>> windows(static_cast<std::size_t>(n_kv));
  Index n_all = 0;
  for (Index kv_head = 0; kv_head < n_kv; ++kv_head) {
    const KeyPools& pools = *keys[static_cast<std::size_t>(kv_head)];
    const std::vector<std::uint8_t> is_out = left_out(call, selection, kv_head);
    const Index begin = row_range(call, call.n_tok - 1).begin;
    for (Index i = (begin + pools.stride() - 1) / pools.stride();
         i < pools.count_whole(row_range(call, 0).end); ++i) {
      const TokenRange range = pools.keys_of(i);
      const auto n_out = static_cast<Index>(
          std::count(is_out.begin() + range.begin, is_out.begin() + range.end, std::uint8_t{1}));
      if (n_out > 0) windows[static_cast<std::size_t>(kv_head)].push_back({i, n_out});
    }
    n_all += static_cast<Index>(windows[static_cast<std::size_t>(kv_head)].size());
  }
  Summaries out;
  if (n_all == 0) return out;
  out.begin = {0};
  out.k = Tensor<float>({n_all, d});
  out.v = Tensor<float>({n_all, d});
  for (Index kv_head = 0; kv_head < n_kv; ++kv_head) {
    const auto at = static_cast<std::size_t>(kv_head);
    Tensor<float> alive_k;
    Tensor<float> alive_v;
    TensorView<const float> k = keys[at]->means();
    TensorView<const float> v = values[at]->means();
    if (!all_alive(call, kv_head)) {
      std::vector<Index> n_alive;
      alive_k = keys[at]->alive_means(call, kv_head, call.k, n_alive);
      alive_v = values[at]->alive_means(call, kv_head, call.v, n_alive);
      k = alive_k.view();
      v = alive_v.view();
    }
    for (const Window& window : windows[at]) {
      const auto row = static_cast<Index>(out.log_count.size());
      std::copy_n(k.row(window.index).data(), d, out.k.view().row(row).data());
      std::copy_n(v.row(window.index).data(), d, out.v.view().row(row).data());
      const double share = static_cast<double>(keys[at]->stride()) /
                           static_cast<double>(keys[at]->keys_of(0).size());
      out.log_count.push_back(
          static_cast<float>(std::log(static_cast<double>(window.n_out) * share)));
    }
    out.begin.push_back(static_cast<Index>(out.log_count.size()));
  }
  return out;
}

}  // namespace kvscope
