// What the panels ask of the trace in front of them.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "analysis/base/trace_selection.hpp"
#include "core/trace/part.hpp"
#include "core/trace/result.hpp"

namespace kvscope::gui {

/// The file name of a trace without folders, for titles and captions.
inline std::string file_name_of(const TraceSource& trace) {
  return std::filesystem::path(trace.where()).filename().string();
}

/// Positions from 0 on at which both traces hold the same tokens.
inline Index n_common_tokens(const TraceSource& a, const TraceSource& b) {
  const auto n = static_cast<std::size_t>(std::min(a.info().n_tokens, b.info().n_tokens));
  const auto x = a.tokens().first(std::min(n, a.tokens().size()));
  const auto y = b.tokens().first(std::min(n, b.tokens().size()));
  return std::mismatch(x.begin(), x.end(), y.begin(), y.end()).first - x.begin();
}

/// What its arrays cost to keep.
inline std::size_t bytes_of(const MemoryResult& result) {
  std::size_t bytes = 0;
  for (const ResultArray& array : result.arrays()) {
    bytes += static_cast<std::size_t>(array.shape.count()) * size_of(array.type);
  }
  return bytes;
}

/// The recorded query heads that share a KV head with this one in a layer, ascending.
inline std::vector<Index> recorded_group_of(const TraceInfo& info, Index layer, Index q_head) {
  std::vector<Index> heads;
  for (Index head : info.q_heads) {
    if (head / info.group(layer) == q_head / info.group(layer)) heads.push_back(head);
  }
  return heads;
}

}  // namespace kvscope::gui
