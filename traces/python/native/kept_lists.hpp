// From what a Python function says to a checked Selection: scores become the best past keys, lists
// of keys are believed only if they keep the rules, and a broken rule is named.
//
// The chunked protocol of core/selectors/candidates.hpp: a list pays for keys before the
// call; the call's own keys are in every list, at no price. One list per owner serves all
// queries of the call.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/selectors/selector.hpp"

namespace kvscope::python {

/// Heads whose lists a selection has.
Index n_owners(const SelectCall& call, ListOwner owner);

/// "layer 3, decode call 7, positions 900 to 900, 901 keys, budget tokens=64".
std::string words_of(const SelectCall& call);

/// How many past keys the owner may keep: its alive past keys and the call's budget decide.
Index n_keep(const SelectCall& call, ListOwner owner, Index index, Index page_size);

/// The best past keys by scores [n_owners][width], row after row, where width is pos_begin (past
/// keys) or all keys; equal scores by position. Dead keys and the call's own are no candidates.
/// Throws ConfigError for another shape, NaN, or a budget that is no number of keys (p).
Selection best_keys(const std::string& method, const SelectCall& call, ListOwner owner,
                    Index page_size, std::span<const double> scores, Index n_rows, Index width);

/// The lists of keys [n_owners], in any order within a list. Throws ConfigError naming list,
/// position and rule: a key twice, one that no query of the call may see yet, a dead one, more past
/// keys than the budget pays for.
Selection stated_keys(const std::string& method, const SelectCall& call, ListOwner owner,
                      Index page_size, std::vector<std::vector<Index>> lists);

}  // namespace kvscope::python
