// The two ways in which methods without scores of their own state their lists: a choice among the
// past keys of each KV head, or a pattern of positions per query row.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/fields.hpp"
#include "core/selectors/selector.hpp"

namespace kvscope {

/// Where a pattern's sizes come from: its own options, or the budget of the call (tokens per query
/// row).
enum class PatternSize { options, budget };

/// Caps of a prefill method that keeps blocks of keys per query head until they hold a share of the
/// attention: its option says which share, or the budget p.
SelectorCaps block_share_caps(PatternSize sizes, Index block);

/// That share.
double block_share(PatternSize sizes, double option, const Budget& budget);

/// The chunked protocol of candidates.hpp for one list per KV head: `choose` gets the head, its
/// alive past keys (ascending) and how many of them the budget pays for, and returns at most
/// that many of them, ascending; it may be asked for several heads at a time. The call's own
/// keys are forced.
using ChoosePast =
    std::function<std::vector<KeyPos>(Index kv_head, std::span<const KeyPos> past, Index n_keep)>;
Selection select_past(const SelectCall& call, const ChoosePast& choose);

/// The keys that compete where the first n_sink keys and the latest n_recent before the call are
/// always kept; keys: the past.
TokenRange between_ends(const SelectCall& call, TokenRange keys, Index n_sink, Index n_recent);

/// The list of one KV head in a method that always keeps the first n_sink keys, the latest n_recent
/// before the call and the call's own (forced, beside the budget): the budget buys the best of
/// those between. scores [keys.size()], -infinity is no candidate; keys: the past.
KeyList best_between_ends(const SelectCall& call, Index kv_head, std::span<const double> scores,
                          TokenRange keys, Index n_sink, Index n_recent);

/// One list per query row for all heads (or one per KV head where these have lost different keys).
/// `pattern` returns the list of the query at a position; it holds visible positions only.
using RowPattern = std::function<KeyList(Index pos)>;
Selection select_rows(const SelectCall& call, const RowPattern& pattern);

/// Appends [begin, end) to ascending `keys`, leaving out what is there already.
void append_range(std::vector<KeyPos>& keys, Index begin, Index end);

/// Removes what this KV head has lost from both parts of the list.
void remove_dead(const SelectCall& call, Index kv_head, KeyList& list);

}  // namespace kvscope
