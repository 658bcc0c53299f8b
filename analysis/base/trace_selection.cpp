#include "analysis/base/trace_selection.hpp"

#include <algorithm>

#include "core/base/error.hpp"

namespace kvscope {

namespace {

std::vector<Index> ascending(std::vector<Index> list, const char* what) {
  std::ranges::sort(list);
  const auto twin = std::adjacent_find(list.begin(), list.end());
  if (twin != list.end()) throw ConfigError("{} {} is given twice; name it once", what, *twin);
  return list;
}

}  // namespace

TraceInfo selected_part(const TraceInfo& info, const TraceSelection& selection) {
  TraceInfo part = info;
  if (!selection.layers.empty()) part = with_layers(info, ascending(selection.layers, "layer"));
  if (!selection.q_heads.empty()) part.q_heads = ascending(selection.q_heads, "query head");
  part.kv_heads.clear();
  for (Index q_head : part.q_heads) {
    info.q_slot(q_head);
    const Index kv_head = q_head / part.group();
    if (part.kv_heads.empty() || part.kv_heads.back() != kv_head) part.kv_heads.push_back(kv_head);
  }
  return part;
}

std::vector<Index> q_slots_of(const TraceInfo& part, Index layer, Index kv_head) {
  std::vector<Index> slots;
  for (std::size_t slot = 0; slot < part.q_heads.size(); ++slot) {
    if (part.q_heads[slot] / part.group(layer) == kv_head)
      slots.push_back(static_cast<Index>(slot));
  }
  return slots;
}

}  // namespace kvscope
