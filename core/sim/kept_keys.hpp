// How many keys a selection makes a call attend to and load: the numbers behind every KV reduction.
#pragma once

#include <optional>
#include <vector>

#include "core/attention/selection.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// The keys of one KV head's group in one call.
struct KeptKeys {
  std::vector<double> attended;  // [group] keys of all rows, per query head
  double n_union = 0.0;  // keys that at least one row of one head attends to: what is loaded
};

/// `call`: positions of the call's queries. group = n_q / n_kv. The causal mask and the window are
/// applied per row.
KeptKeys count_kept_keys(const Selection& selection, Index group, Index kv_head, TokenRange call,
                         std::optional<Index> window);

}  // namespace kvscope
