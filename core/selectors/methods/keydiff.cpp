// keydiff: evict the keys that look most like all the others (Park et al., arXiv 2504.15364).
//
// Idea: per KV head, the anchor is the mean of the unit vectors of all keys alive; a key's score is
// minus its cosine to the anchor; after each call the budget's best stay. Queries and attention
// weights are never looked at. (Minus the sum of cosines to all keys gives the same order: sum_m
// k_m . k_j = n mu . k_j for unit keys.) Cost per call and KV head with n alive keys: 4 n d FLOPs
// and one read of the alive keys, n d b bytes. Stores nothing by definition; live runs (f32) keep
// each key's norm and the sum of the unit keys, which grow with the cache, so that a call reads the
// alive keys once: in decode that is half of what dense attention over them reads, and a floor,
// since a new anchor changes every cosine. Fails when what matters looks like everything else (a
// needle in similar text), and forgets recent context unless a share of the budget is kept for it.
// Decided here: the anchor is computed anew from all keys alive, after the attention of every call,
// so old and new scores compare. The whole context's budget is N: a call of B tokens attends to up
// to N + B keys. No sinks or recents by default.
#include "core/selectors/cost_units.hpp"
#include "core/selectors/eviction.hpp"
#include "core/selectors/mean_cosines.hpp"
#include "core/selectors/registry.hpp"

namespace kvscope {

namespace {

enum class Anchor { unit, raw };

class KeyDiff final : public EvictingMethod {
 public:
  Anchor anchor_ =
      option(anchor_, "anchor", Anchor::unit, "mean of unit keys, or of keys as they are");
  double recent_share_ = option(recent_share_, "recent-share", 0.0,
                                "share of the budget kept for the latest keys", in(0.0, 1.0));
  double eps_ =
      option(eps_, "eps", 1e-12, "vectors are divided by at least this norm", in(1e-300, 1.0));

  HostRows host_rows() const override { return HostRows::none; }
  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    return channels_cost(call, attended_keys_of(call, selection), /*flops=*/4.0, /*elements=*/1.0);
  }

 protected:
  Index n_recent(Index budget) const override {
    return static_cast<Index>(recent_share_ * static_cast<double>(budget));
  }
  KeyValues scores(const SelectCall& call, const KeyLists& keys) override {
    KeyValues values = mean_cosines(call, keys, anchor_ == Anchor::unit, eps_);
    for (auto& head : values) {
      for (double& value : head) value = -value;
    }
    return values;
  }
  void after_loss(const SelectCall& call, Index kv_head, std::span<const KeyPos> keys) override {
    keep_mean_of(call, kv_head, keys, anchor_ == Anchor::unit, eps_);
  }
};

}  // namespace

void register_keydiff(SelectorRegistry& registry) {
  registry.add<KeyDiff>("keydiff", "KeyDiff: eviction by key similarity", "arXiv 2504.15364",
                        "evicts the keys that are most similar to the mean of all keys");
}

}  // namespace kvscope
