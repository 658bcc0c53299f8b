#include "core/selectors/mean_values.hpp"

#include <algorithm>

#include "core/attention/remote_rows.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/owners.hpp"

namespace kvscope {

namespace {

/// Sums of the values of one KV head that grow with the cache. Every kStride tokens a copy is kept,
/// so that a rollback leads to the very same sums as if the dropped tokens had never been there.
class ValueSums {
 public:
  static constexpr Index kStride = 256;

  /// Adds values, [d_head] each or their sum, up to position `end`: the next multiple of kStride at
  /// most.
  template <class T>
  void add(std::span<const T> value, Index end) {
    if (copies_.empty()) copies_.emplace_back(value.size(), 0.0);
    if (n_values_ % kStride == 0) sum_ = copies_.back();
    for (std::size_t c = 0; c < sum_.size(); ++c) sum_[c] += static_cast<double>(value[c]);
    n_values_ = end;
    if (end % kStride == 0) copies_.push_back(sum_);
  }
  void truncate(Index n_values) {
    if (n_values >= n_values_) return;
    n_values_ = n_values / kStride * kStride;
    copies_.resize(static_cast<std::size_t>(n_values_ / kStride + 1));
  }
  std::span<const double> sum() const { return sum_; }
  Index n_values() const { return n_values_; }

 private:
  Index n_values_ = 0;
  std::vector<double> sum_;
  std::vector<std::vector<double>> copies_;
};

/// The running sum of a KV head, of all values of the context.
std::span<const double> running_sum(const SelectCall& call, ValueSums& sums, Index kv_head) {
  const auto v = call.v.sub(kv_head);
  while (sums.n_values() < v.dim(0)) sums.add(v.row(sums.n_values()), sums.n_values() + 1);
  return sums.sum();
}

/// The same of all KV heads where the values lie elsewhere.
void add_remote(const SelectCall& call, std::span<ValueSums* const> sums) {
  const Index n_ctx = call.k.dim(1);
  while (sums.front()->n_values() < n_ctx) {
    const Index begin = sums.front()->n_values();
    const Index end = std::min(n_ctx, (begin / ValueSums::kStride + 1) * ValueSums::kStride);
    const KeyValues more = call.remote->value_sums({begin, end});
    for (std::size_t i = 0; i < sums.size(); ++i)
      sums[i]->add(std::span<const double>(more[i]), end);
  }
}

}  // namespace

KeyValues mean_values(const SelectCall& call) {
  const TokenRange visible = call_range(call);
  std::vector<ValueSums*> sums;
  for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head)
    sums.push_back(&engine_of(call).kept<ValueSums>(call.layer, kv_head));
  if (call.remote != nullptr) add_remote(call, sums);
  KeyValues means;
  for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head) {
    std::vector<double> mean(static_cast<std::size_t>(call.k.dim(2)), 0.0);
    Index n = 0;
    if (visible.begin == 0 && all_alive(call, kv_head)) {
      ValueSums& own = *sums[static_cast<std::size_t>(kv_head)];
      const auto sum = call.remote != nullptr ? own.sum() : running_sum(call, own, kv_head);
      std::ranges::copy(sum, mean.begin());
      n = own.n_values();
    } else {
      for (const KeyPos pos : candidates(call, kv_head, visible)) {
        const auto value = call.v.sub(kv_head).row(pos);
        for (std::size_t c = 0; c < mean.size(); ++c) mean[c] += static_cast<double>(value[c]);
        ++n;
      }
    }
    for (double& value : mean) value /= static_cast<double>(std::max<Index>(n, 1));
    means.push_back(std::move(mean));
  }
  return means;
}

}  // namespace kvscope
