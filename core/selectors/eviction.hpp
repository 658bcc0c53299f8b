// What evicting (permanent) methods share: attend to all that is left, then shrink the cache to the
// budget.
//
// Order of a call, in every phase: the call sees everything that was alive plus its own tokens, and
// the eviction comes after the attention. So with a budget of N a chunk of B tokens attends to up
// to N + B keys.
#pragma once

#include <span>
#include <vector>

#include "core/selectors/key_lists.hpp"
#include "core/selectors/selector.hpp"

namespace kvscope {

/// Everything alive and visible: dense while nothing was lost, else one list per KV head, the
/// call's own tokens forced.
Selection alive_selection(const SelectCall& call);

/// Keys of this KV head that a permanent method may hold after this call: the budget of all n_ctx
/// positions.
Index eviction_budget(const SelectCall& call);

/// Keys in the selection for `call` for this KV head: what is alive, the call's own tokens
/// included.
Index attended_keys_of(const SelectCall& call, const Selection& selection, Index kv_head);
/// The same summed over the KV heads.
double attended_keys_of(const SelectCall& call, const Selection& selection);

/// Kills the keys of `candidates` (ascending positions) with the lowest scores until `n_keep` are
/// left; equal scores lose the later key first. scores [candidates.size()].
void keep_best(std::span<const double> scores, std::span<const KeyPos> candidates, Index n_keep,
               Index kv_head, AliveMask& alive);

/// The keys of a KV head that may leave.
struct Contest {
  std::span<const KeyPos> keys;    // ascending
  std::span<const double> scores;  // [keys.size()]
  Index n_safe = 0;                // how many others stay, inside the budget
};

/// A method that scores all keys that are alive after a call and keeps the best of every KV head,
/// between first and latest keys that stay inside the budget. It says what the scores are.
class EvictingMethod : public Selector {
 public:
  SelectorCaps caps() const override { return evicting({}); }
  bool remembers() const override { return false; }
  Selection do_select(const SelectCall& call) override { return alive_selection(call); }
  void evict(const SelectCall& call, AliveMask& alive) override;

 protected:
  /// What the method says beside what all of these do.
  static SelectorCaps evicting(SelectorCaps caps) {
    caps.permanent = true;
    caps.budgets = kTokenBudgets;
    return caps;
  }
  /// False: nothing leaves after this call.
  virtual bool evicts_after(const SelectCall& call) const {
    (void)call;
    return true;
  }
  /// Keys that a KV head may hold after this call; of methods whose heads divide the layer's budget
  /// (caps) on the average.
  virtual Index budget_of(const SelectCall& call) const { return eviction_budget(call); }
  /// How many of the first and of the latest keys stay whatever their scores.
  virtual Index n_sink() const { return 0; }
  virtual Index n_recent(Index budget) const {
    (void)budget;
    return 0;
  }
  /// Scores of the keys that are alive, ascending, [n_kv][keys[i].size()]; the highest stay. Those
  /// of keys that stay anyway are not looked at. Asked only when something has to leave.
  virtual KeyValues scores(const SelectCall& call, const KeyLists& keys) = 0;
  /// How many of the contested keys each KV head keeps; what the budget leaves, unless the method
  /// divides it.
  virtual std::vector<Index> shares(Index budget, std::span<const Contest> contests) const;
  /// Called when a KV head has lost keys, which are still what they were. keys: those that stay.
  virtual void after_loss(const SelectCall& call, Index kv_head, std::span<const KeyPos> keys) {
    (void)call, (void)kv_head, (void)keys;
  }
  /// What is contested of the keys that are alive, by KV head; views of both.
  std::vector<Contest> contests_of(Index budget, const KeyLists& keys,
                                   const KeyValues& scores) const;
};

}  // namespace kvscope
