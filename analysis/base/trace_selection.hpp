// Which layers and heads of a trace an analysis looks at.
#pragma once

#include <vector>

#include "core/trace/info.hpp"

namespace kvscope {

/// True indices of the model, in any order; an empty list means all that are recorded.
struct TraceSelection {
  std::vector<Index> layers;
  std::vector<Index> q_heads;  // their KV heads follow
  bool operator==(const TraceSelection&) const = default;
};

/// `info` with layers, q_heads and kv_heads cut to the selection, ascending. Throws ConfigError for
/// an index that was not recorded or is given twice.
TraceInfo selected_part(const TraceInfo& info, const TraceSelection& selection);

/// Slots in `part` of the query heads that read this KV head.
std::vector<Index> q_slots_of(const TraceInfo& part, Index layer, Index kv_head);

}  // namespace kvscope
