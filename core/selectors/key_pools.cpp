#include "core/selectors/key_pools.hpp"

#include <algorithm>

namespace kvscope {

namespace {

/// The mean of the keys in `range` that count, and how many these are. out [d_head]
template <class Counts>
Index mean_of(TensorView<const float> k, TokenRange range, const Counts& counts,
              std::vector<double>& sum, float* out) {
  sum.assign(static_cast<std::size_t>(k.dim(1)), 0.0);
  Index n = 0;
  for (Index pos = range.begin; pos < range.end; ++pos) {
    if (!counts(pos)) continue;
    ++n;
    const auto key = k.row(pos);
    for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += static_cast<double>(key[c]);
  }
  const double share = n > 0 ? 1.0 / static_cast<double>(n) : 0.0;
  for (std::size_t c = 0; c < sum.size(); ++c) out[c] = static_cast<float>(sum[c] * share);
  return n;
}

}  // namespace

void KeyPools::append_up_to(TensorView<const float> k) {
  const Index n = count_whole(k.dim(0));
  if (n <= n_windows_) return;
  means_.resize(static_cast<std::size_t>(n * d_head_));
  std::vector<double> sum;
  for (; n_windows_ < n; ++n_windows_)
    mean_of(
        k, keys_of(n_windows_), [](Index) { return true; }, sum,
        means_.data() + n_windows_ * d_head_);
}

void KeyPools::truncate(Index n_keys) {
  n_windows_ = std::min(n_windows_, count_whole(n_keys));
}

PoolMeans KeyPools::means_in(const SelectCall& call, Index kv_head,
                             TensorView<const float> rows) const {
  PoolMeans in{*this, means(), {}, {}};
  if (all_alive(call, kv_head)) return in;
  in.own = Tensor<float>(Shape{n_windows_, d_head_});
  std::vector<double> sum;
  const auto k = rows.sub(kv_head);
  for (Index i = 0; i < n_windows_; ++i) {
    in.n_alive.push_back(mean_of(
        k, keys_of(i), [&](Index pos) { return is_alive(call, kv_head, pos); }, sum,
        in.own.data() + i * d_head_));
  }
  in.means = std::as_const(in.own).view();
  return in;
}

}  // namespace kvscope
