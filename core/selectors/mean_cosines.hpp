// What keys say by themselves: how long each is (Knorm's score), and how much it looks like all the
// others, by the cosine with the mean of its list (KeyDiff's). Where keys lie elsewhere the device
// is asked; in f64 everything is made from the keys alone; in f32 the call's engine keeps the
// running sum of each list, so that a call reads the keys once.
#pragma once

#include "core/selectors/key_lists.hpp"

namespace kvscope {

/// The cosine of each key of a KV head's list with the list's mean: of unit keys, or (takes_unit
/// false) of keys as they are. Vectors are divided by at least the norm eps. lists [n_kv], none
/// empty where there is a context; answer [n_kv][lists[i].size()].
KeyValues mean_cosines(const SelectCall& call, const KeyLists& lists, bool takes_unit, double eps);

/// 1 / max(|k|, eps) of each key of a KV head's list, as mean_cosines takes them.
KeyValues inverse_norms(const SelectCall& call, const KeyLists& lists, double eps);

/// Takes the keys that a KV head's list has lost out of its running sum, while they are still what
/// they were. keys: those that stay.
void keep_mean_of(const SelectCall& call, Index kv_head, std::span<const KeyPos> keys,
                  bool takes_unit, double eps);

}  // namespace kvscope
