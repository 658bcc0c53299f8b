// The mean of the values that a call sees: what stands in for keys that are left out.
#pragma once

#include "core/selectors/key_lists.hpp"
#include "core/selectors/selector.hpp"

namespace kvscope {

/// [n_kv][d_head] over the alive keys of call_range. The call's engine keeps running sums, so that
/// a decode step reads the new values alone; sums are those of the values one after the other.
KeyValues mean_values(const SelectCall& call);

}  // namespace kvscope
