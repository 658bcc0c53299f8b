#include "core/trace/source.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"

namespace kvscope {

void require_full_qkv(const TraceSource& trace, std::string_view analysis) {
  const TraceInfo& info = trace.info();
  if (!info.capture.qkv) {
    throw ConfigError(fmt::format("{}: needs q, k and v, but {} was recorded without them",
                                  analysis, trace.where()));
  }
  if (info.n_tokens < 1 || info.layers.empty() || info.q_heads.empty()) {
    throw ConfigError(fmt::format(
        "{}: needs at least one token, layer and head, but {} holds {} tokens, {} layers, {} query "
        "heads",
        analysis, trace.where(), info.n_tokens, info.layers.size(), info.q_heads.size()));
  }
  if (info.rows != TokenRange{0, info.n_tokens}) {
    throw ConfigError(fmt::format(
        "{}: needs the queries of every position, expected [0, {}), but {} holds those of [{}, {})",
        analysis, info.n_tokens, trace.where(), info.rows.begin, info.rows.end));
  }
}

}  // namespace kvscope
