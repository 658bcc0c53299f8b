#include "core/trace/source.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"

namespace kvscope {

void require_full_qkv(const TraceSource& trace, std::string_view analysis) {
  const TraceInfo& info = trace.info();
  if (!info.capture.qkv) {
    throw ConfigError(
        fmt::format("{}: {} needs recorded q, k and v, and this trace was made without them",
                    trace.where(), analysis));
  }
  if (info.n_tokens < 1 || info.layers.empty() || info.q_heads.empty()) {
    throw ConfigError(fmt::format(
        "{}: {} needs at least one token, layer and head, and this trace holds {} tokens, {} "
        "layers, {} query heads",
        trace.where(), analysis, info.n_tokens, info.layers.size(), info.q_heads.size()));
  }
  if (info.rows != TokenRange{0, info.n_tokens}) {
    throw ConfigError(
        fmt::format("{}: {} needs q of all {} tokens, and this trace holds rows {} to {}",
                    trace.where(), analysis, info.n_tokens, info.rows.begin, info.rows.end));
  }
}

}  // namespace kvscope
