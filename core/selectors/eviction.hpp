// What evicting (permanent) methods share: attend to all that is left, then shrink the cache to the
// budget.
//
// Order of a call, in every phase: the call sees everything that was alive plus its own tokens, and
// the eviction comes after the attention. So with a budget of N a chunk of B tokens attends to up
// to N + B keys.
#pragma once

#include <span>

#include "core/selectors/selector.hpp"

namespace kvscope {

/// Everything alive and visible: dense while nothing was lost, else one list per KV head, the
/// call's own tokens forced.
Selection alive_selection(const SelectCall& call);

/// Keys of this KV head that a permanent method may hold after this call: the budget of all n_ctx
/// positions.
Index eviction_budget(const SelectCall& call);

/// Keys in the answer to `call` for this KV head: what is alive, the call's own tokens included.
Index attended_keys_of(const SelectCall& call, const Selection& selection, Index kv_head);

/// Kills the keys of `candidates` (ascending positions) with the lowest scores until `n_keep` are
/// left; equal scores lose the later key first. scores [candidates.size()].
void keep_best(std::span<const double> scores, std::span<const KeyPos> candidates, Index n_keep,
               Index kv_head, AliveMask& alive);

}  // namespace kvscope
