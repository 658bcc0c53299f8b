// Which keys a selector may choose from, and how scores of them become lists: causality and the
// alive mask come before any score.
//
// Chunked protocol (shared by all methods that score anew in every call): the keys before the call
// ("past") are scored and pay from the budget; the call's own keys ("chunk", one token in decode)
// are forced on top of it and the causal mask cuts them per row.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/selectors/selector.hpp"

namespace kvscope {

/// Positions of the call's own tokens.
TokenRange chunk_range(const SelectCall& call);

/// Positions before the call that at least its first query sees (a sliding window cuts the older
/// ones).
TokenRange past_range(const SelectCall& call);

/// Positions that at least one query of the call sees.
TokenRange call_range(const SelectCall& call);

/// Positions that query `row` of the call sees.
TokenRange row_range(const SelectCall& call, Index row);

/// True if no alive mask is given or the key still exists for this KV head.
bool is_alive(const SelectCall& call, Index kv_head, Index pos);

/// The attention sink of a query head; empty if the layer has none.
std::optional<double> sink_logit_of(const SelectCall& call, Index q_head);

/// True if every key of this KV head is alive.
bool all_alive(const SelectCall& call, Index kv_head);

bool all_alive(const SelectCall& call);  // of all KV heads
/// True if some KV head still has the key.
bool is_held(const SelectCall& call, Index pos);
/// True for a single decoded token.
inline bool is_decode(const SelectCall& call) {
  return call.phase == Phase::decode && call.n_tok == 1;
}
/// The alive positions of `range`, ascending.
std::vector<KeyPos> candidates(const SelectCall& call, Index kv_head, TokenRange range);

/// How many there are.
Index count_candidates(const SelectCall& call, Index kv_head, TokenRange range);

/// Sets the score of every dead key to -infinity. scores [range.size()]; element 0 belongs to
/// range.begin.
void mask_dead(const SelectCall& call, Index kv_head, TokenRange range, std::span<double> scores);

/// The k best candidates (score descending, position ascending) as a list of scored keys. scores
/// [candidates.size()]; -infinity means "not a candidate".
KeyList top_k_list(std::span<const double> scores, std::span<const KeyPos> candidates, Index k);

/// The same for the positions of a range; element 0 of `scores` belongs to range.begin.
KeyList top_k_list(std::span<const double> scores, TokenRange range, Index k);

/// The same for several k, each added to its selection with `forced` (ascending, outside `range`):
/// where Top_k ends is found for all of them at once.
void add_top_k_lists(std::span<const double> scores, TokenRange range, std::span<const Index> ks,
                     std::span<const KeyPos> forced, std::span<Selection> selections);

/// Moves `keys` (ascending) into the forced part: they leave the scored part and join what is
/// forced already.
void force_keys(KeyList& list, std::span<const KeyPos> keys);

/// A selection of everything visible, for layers that a method keeps dense.
Selection dense_selection(const SelectCall& call, ListOwner owner);
std::vector<Selection> dense_selections(const SelectCall& call, ListOwner owner, std::size_t n);

/// What layers of a call hand on to later ones; throws ConfigError if the call has no such context.
CrossLayerContext& context_of(const SelectCall& call, std::string_view method);

/// A layer's list serves all KV heads. Where these have lost different keys, splits it into one
/// list per KV head without the dead ones; otherwise returns it as it is.
Selection without_dead_keys(Selection selection, const SelectCall& call);

/// Throws ConfigError unless the method takes budgets of this kind.
void check_budget_kind(std::string_view method, const SelectorCaps& caps, const Budget& budget);

}  // namespace kvscope
