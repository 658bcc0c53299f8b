#include "core/trace/info.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/base/error.hpp"

namespace kvscope {

namespace {

constexpr std::array<std::string_view, 4> kStatusNames = {"recording", "complete", "interrupted",
                                                          "recovered"};

bool contains(const std::vector<Index>& ascending, Index value) {
  return std::binary_search(ascending.begin(), ascending.end(), value);
}

Index slot_of(const std::vector<Index>& ascending, Index value, std::string_view what) {
  const auto it = std::lower_bound(ascending.begin(), ascending.end(), value);
  if (it == ascending.end() || *it != value) {
    throw ConfigError(fmt::format("{} {} is not in the trace: recorded {}s are {}", what, value,
                                  what, fmt::join(ascending, ", ")));
  }
  return it - ascending.begin();
}

}  // namespace

std::string_view name_of(TraceStatus status) {
  return kStatusNames[static_cast<std::size_t>(status)];
}

std::optional<TraceStatus> trace_status_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kStatusNames.size(); ++i) {
    if (kStatusNames[i] == name) return static_cast<TraceStatus>(i);
  }
  return std::nullopt;
}

bool TraceInfo::has_layer(Index layer) const {
  return contains(layers, layer);
}
bool TraceInfo::has_q_head(Index q_head) const {
  return contains(q_heads, q_head);
}
bool TraceInfo::has_kv_head(Index kv_head) const {
  return contains(kv_heads, kv_head);
}

Index TraceInfo::layer_slot(Index layer) const {
  return slot_of(layers, layer, "layer");
}
Index TraceInfo::q_slot(Index q_head) const {
  return slot_of(q_heads, q_head, "query head");
}
Index TraceInfo::kv_slot(Index kv_head) const {
  return slot_of(kv_heads, kv_head, "KV head");
}

}  // namespace kvscope
