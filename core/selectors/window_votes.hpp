// The base of methods that let the last queries of a prompt vote (SnapKV, Ada-KV): softmax rows of
// the last `window` queries of each prefill call, summed over rows, averaged over the KV group and
// pooled over neighbouring keys; the best keys and the window stay. Decoded tokens are appended and
// never evicted.
#pragma once

#include <span>
#include <vector>

#include "core/base/fields.hpp"
#include "core/selectors/eviction.hpp"

namespace kvscope {

enum class Pooling { average, max, none };

class WindowVotes : public EvictingMethod {
 public:
  void configure() override;
  HostRows host_rows() const override { return HostRows::none; }
  SelectCost cost(const SelectCall& call, const Selection& selection) const override;

 protected:
  WindowVotes(Index window, Index kernel, Pooling pooling);

  Index window_;
  Index kernel_;
  Pooling pooling_;

  bool evicts_after(const SelectCall& call) const override { return call.phase == Phase::prefill; }
  Index n_recent(Index) const override { return window_; }
  KeyValues scores(const SelectCall& call, const KeyLists& keys) override;

  /// The last queries of the call, all of a shorter one.
  std::vector<Index> voting_rows(const SelectCall& call) const;
  /// Votes of one list's keys before its window, pooled as the rows of a compacted cache; 0 for the
  /// window. sums: of the positions of call_range.
  std::vector<double> pooled(const SelectCall& call, std::span<const KeyPos> keys,
                             std::span<const double> sums) const;
};

}  // namespace kvscope
