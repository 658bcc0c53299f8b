// knorm: evict the keys of largest norm (Devoto et al., arXiv 2406.11430, EMNLP 2024; kvpress).
//
// Idea: in many models the keys with the smallest L2 norm get the most attention, whatever is
// asked; after each call the budget's smallest stay in every KV head. Queries and attention
// weights are never looked at. Cost per call and KV head with n alive keys: 2 n d FLOPs and one
// read of them, n d b bytes, by definition; here each key's norm is made once and kept. Fails
// where a model's norms say nothing (the paper leaves the first two layers dense, where they do
// not: dense-layers), and forgets the latest text unless `recent` keys stay. In the first layer
// a norm depends on the token alone, since RoPE keeps norms: which of a token's repeats stay is
// decided by rounding there, and differs between a CPU and a GPU. Decided here: scores are made
// after the attention of every call, as for all evicting methods; of equal norms the earlier key
// stays. Nothing is protected by default, as in kvpress; the authors' own cache keeps recents.
#include "core/selectors/cost_units.hpp"
#include "core/selectors/eviction.hpp"
#include "core/selectors/mean_cosines.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_options.hpp"

namespace kvscope {

namespace {

class KNorm final : public EvictingMethod {
 public:
  Index recent_ = latest_keys_option(recent_);
  Index dense_layers_ = dense_layers_option(dense_layers_);

  SelectorCaps caps() const override { return evicting({.dense_layers = dense_layers_}); }
  HostRows host_rows() const override { return HostRows::none; }
  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    return channels_cost(call, attended_keys_of(call, selection), /*flops=*/2.0, /*elements=*/1.0);
  }

 protected:
  Index n_recent(Index) const override { return recent_; }
  KeyValues scores(const SelectCall& call, const KeyLists& keys) override {
    return inverse_norms(call, keys, /*eps=*/1e-300);
  }
};

}  // namespace

void register_knorm(SelectorRegistry& registry) {
  registry.add<KNorm>("knorm", "Knorm: eviction by key norm", "arXiv 2406.11430",
                      "evicts the keys of largest norm");
}

}  // namespace kvscope
