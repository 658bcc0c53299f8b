// What lists leave out, as summaries: the compressed branch of Native Sparse Attention, whose
// windows of keys are attended to through their mean key and mean value.
#pragma once

#include <span>

#include "core/selectors/key_pools.hpp"

namespace kvscope {

/// One summary for each window that all queries of the call see whole and of which some alive key
/// is in no list of its KV head: the mean of the window's alive keys and values, which counts as
/// stride / length of the keys that are left out (windows overlap: each key lies in length / stride
/// of them). `selection` has lists per KV head; keys, values: windows of call.k and call.v, [n_kv].
Summaries summaries_of_left_out(const SelectCall& call, const Selection& selection,
                                std::span<const KeyPools* const> keys,
                                std::span<const KeyPools* const> values);

}  // namespace kvscope
