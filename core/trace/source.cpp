#include "core/trace/source.hpp"

#include "core/base/error.hpp"

namespace kvscope {

namespace {

[[noreturn]] void throw_no_side(const TraceSource& trace, std::string_view what, Index layer) {
  throw ConfigError(
      "{}: holds no {} of layer {}: {}", trace.where(), what, layer,
      what == enum_name(SideTensor::k_pre_rope)
          ? "it is recorded with --capture k-pre-rope (kvscope record, kvscope_recorder)"
          : "it is recorded of models that have an indexer (kvscope_recorder, capture index)");
}

}  // namespace

bool has_side(const TraceInfo& info, SideTensor what, Index layer) {
  if (what == SideTensor::k_pre_rope) return info.capture.k_pre_rope && info.has_layer(layer);
  return info.index.has_layer(layer) && (what != SideTensor::index_w || info.index.has_gates);
}

void require_side(const TraceSource& trace, SideTensor what, Index layer, Index head) {
  const TraceInfo& info = trace.info();
  if (!has_side(info, what, layer)) throw_no_side(trace, enum_name(what), layer);
  if (what == SideTensor::k_pre_rope) {
    info.kv_slot(layer, head);
    return;
  }
  const Index n = what == SideTensor::index_k ? info.index.n_key_heads : info.index.n_heads;
  if (head >= 0 && head < n) return;
  throw ConfigError("{}: {} of layer {}: head {} does not exist, expected 0 to {}", trace.where(),
                    enum_name(what), layer, head, n - 1);
}

void require_selected(const TraceSource& trace, Index layer, Index list) {
  const IndexShape& index = trace.info().index;
  if (!index.has_layer(layer) || index.n_selected == 0)
    throw_no_side(trace, "index_selected", layer);
  if (list >= 0 && list < index.n_lists) return;
  throw ConfigError("{}: index_selected of layer {}: list {} does not exist, expected 0 to {}",
                    trace.where(), layer, list, index.n_lists - 1);
}

Tensor<float> TraceSource::read_side(SideTensor what, Index layer, Index, TokenRange) const {
  throw_no_side(*this, enum_name(what), layer);
}

Tensor<std::int32_t> TraceSource::read_selected(Index layer, Index, TokenRange) const {
  throw_no_side(*this, "index_selected", layer);
}

void require_full_qkv(const TraceSource& trace, std::string_view analysis) {
  const TraceInfo& info = trace.info();
  if (!info.capture.qkv) {
    throw ConfigError("{}: {} needs recorded q, k and v, and this trace was made without them",
                      trace.where(), analysis);
  }
  if (info.n_tokens < 1 || info.layers.empty() || info.q_heads.empty()) {
    throw ConfigError(
        "{}: {} needs at least one token, layer and head, and this trace holds {} tokens, {} "
        "layers, {} query heads",
        trace.where(), analysis, info.n_tokens, info.layers.size(), info.q_heads.size());
  }
  if (info.rows != TokenRange{0, info.n_tokens}) {
    throw ConfigError("{}: {} needs q of all {} tokens, and this trace holds rows {} to {}",
                      trace.where(), analysis, info.n_tokens, info.rows.begin, info.rows.end);
  }
}

}  // namespace kvscope
