// tova: after each call, evict what its last query attended to least (Oren et al., arXiv
// 2401.06104).
//
// Idea: the score of a key is its softmax weight in the LAST query's row, averaged over all
// query heads; the budget's best stay, for all heads alike. In decode exactly one key leaves per
// step once the cache is full. No sinks, no recents: the current token itself may leave
// (keep-current forces it to stay, as kvpress does). Cost per call with n keys: n_q n additions
// on weights that attention has anyway (they must be written out: n_q n floats; here the row is
// made once more beside the attention, one read of all keys: in decode half of what attention
// reads). Stores the last query's mean row, n floats per layer. Fails when the last query of a
// chunk or prompt does not care for what later ones need: one vote decides. Decided here: in
// chunked prefill the vote is that of each chunk's last query, and all keys of the chunk may
// leave. Positions stay true positions.
#include <algorithm>

#include "core/selectors/cost_units.hpp"
#include "core/selectors/eviction.hpp"
#include "core/selectors/registry.hpp"

namespace kvscope {

namespace {

class Tova final : public EvictingMethod {
 public:
  bool keep_current_ = option(keep_current_, "keep-current", false,
                              "the latest key always stays, inside the budget");

  SelectorCaps caps() const override {
    return evicting({.owner = ListOwner::layer, .needs_probs = true});
  }
  void reset(const AttentionShape&) override { votes_.clear(); }

  Selection do_select(const SelectCall& call) override {
    Selection selection = alive_selection(call);
    // Alone, all heads have lost the same keys: one list for the layer. After another evicting
    // method they may differ.
    if (selection.is_dense) return selection;
    const ListView first = selection.at(0);
    for (Index kv_head = 1; kv_head < selection.n_lists(); ++kv_head) {
      const ListView list = selection.at(kv_head);
      if (!std::ranges::equal(list.keys, first.keys)) return selection;
    }
    Selection shared(ListOwner::layer, selection.n_tok, selection.rows_per_list);
    shared.add(first);
    return shared;
  }

  void observe(const SelectCall&, const ObservedProbs& probs) override {
    votes_.assign(static_cast<std::size_t>(probs.pos_begin + probs.n_tok), 0.0);
    probs.add_votes(ListOwner::layer, {probs.n_tok - 1, probs.n_tok}, /*factor=*/1.0,
                    std::span(&votes_, 1));
  }

  HostRows host_rows() const override { return HostRows::none; }

  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    const auto group = static_cast<double>(call.q.dim(0) / call.k.dim(0));
    // Heads have lost the same keys unless another evicting method came before.
    Index most = 0;
    for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head)
      most = std::max(most, attended_keys_of(call, selection, kv_head));
    return weights_cost(group * attended_keys_of(call, selection), static_cast<double>(most));
  }

 protected:
  Index n_recent(Index) const override { return keep_current_ ? 1 : 0; }
  KeyValues scores(const SelectCall&, const KeyLists& keys) override {
    return values_at(votes_, keys);
  }

 private:
  std::vector<double> votes_;  // of the call that was observed last: by position
};

}  // namespace

void register_tova(SelectorRegistry& registry) {
  registry
      .add<Tova>("tova", "TOVA: eviction by the last query's attention", "arXiv 2401.06104",
                 "evicts the keys that the last query attended to least, alike for all heads")
      .presets["tova-kvpress"] = {{"keep-current", "true"}};
}

}  // namespace kvscope
