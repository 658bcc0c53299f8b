#include "core/trace/memory_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"
#include "core/base/evenly_spaced.hpp"

namespace kvscope {

namespace {

Index count_of(const std::vector<Index>& list) {
  return static_cast<Index>(list.size());
}

/// Copies positions `range` (offset by `origin`) of one head and refuses NaN and Inf.
Tensor<float> read_rows(TensorView<const float> head, TokenRange range, Index origin,
                        const std::string& dataset) {
  const Index held = head.dim(0);
  if (range.begin < origin || range.end < range.begin || range.end > origin + held) {
    throw ConfigError("{}: positions [{}, {}) were not recorded; recorded are [{}, {})", dataset,
                      range.begin, range.end, origin, origin + held);
  }
  const bool vectors = head.rank() == 2;
  const Index width = vectors ? head.dim(1) : 1;
  auto out = vectors ? Tensor<float>::uninitialized({range.size(), width})
                     : Tensor<float>::uninitialized({range.size()});
  const float* from = head.data() + (range.begin - origin) * width;
  std::copy_n(from, range.size() * width, out.data());
  for (Index i = 0; i < out.count(); ++i) {
    if (!std::isfinite(out.data()[i])) {
      throw FormatError("{}: value {} at position {}, channel {}; expected finite numbers", dataset,
                        out.data()[i], range.begin + i / width, i % width);
    }
  }
  return out;
}

}  // namespace

MemoryTrace::MemoryTrace(const TraceInfo& info) : info_(info) {
  if (info.n_q < 1 || info.n_kv < 1 || info.n_q % info.n_kv != 0 || info.d_head < 1 ||
      info.n_tokens < 0) {
    throw ConfigError(
        "trace in memory: {} query heads, {} KV heads, head dimension {}, {} tokens do not make a "
        "trace",
        info.n_q, info.n_kv, info.d_head, info.n_tokens);
  }
  if (info.rows.begin < 0 || info.rows.size() < 0 || info.rows.end > info.n_tokens) {
    throw ConfigError("trace in memory: rows [{}, {}) do not lie in [0, {})", info.rows.begin,
                      info.rows.end, info.n_tokens);
  }
  const Index n_q = count_of(info.q_heads);
  for (const Index at : info.layers) {
    const Index n_kv = count_of(info.kv_heads_of(at));
    const Index d_head = info.shape(at).d_head;
    layers_.push_back({Tensor<float>({n_q, info.rows.size(), d_head}),
                       Tensor<float>({n_kv, info.n_tokens, d_head}),
                       Tensor<float>({n_kv, info.n_tokens, d_head}),
                       Tensor<float>({n_q, info.rows.size()}),
                       {},
                       {}});
    Layer& layer = layers_.back();
    const IndexShape& index = info.index;
    const Index n_rows = info.rows.size();
    if (index.has_layer(at)) {
      layer.of(SideTensor::index_q) = Tensor<float>({index.n_heads, n_rows, index.width});
      layer.of(SideTensor::index_k) =
          Tensor<float>({index.n_key_heads, info.n_tokens, index.width});
      if (index.has_gates) layer.of(SideTensor::index_w) = Tensor<float>({index.n_heads, n_rows});
      if (index.n_selected > 0)
        layer.selected = Tensor<std::int32_t>({index.n_lists, n_rows, index.n_selected});
    }
    if (info.capture.k_pre_rope)
      layer.of(SideTensor::k_pre_rope) = Tensor<float>({n_kv, info.n_tokens, d_head});
  }
}

const MemoryTrace::Layer& MemoryTrace::layer_at(Index layer) const {
  return layers_[static_cast<std::size_t>(info_.layer_slot(layer))];
}

Tensor<float> MemoryTrace::read(TraceTensor what, Index layer, Index head, TokenRange range) const {
  const Layer& own = layer_at(layer);
  const Tensor<float>* const tensors[] = {&own.q, &own.k, &own.v, &own.lse};
  const bool of_queries = is_of_queries(what);
  const auto rows = tensors[static_cast<std::size_t>(what)]->sub(
      of_queries ? info_.q_slot(head) : info_.kv_slot(layer, head));
  return read_rows(rows.range(0, 0, of_queries ? info_.rows.size() : info_.n_tokens), range,
                   of_queries ? info_.rows.begin : 0,
                   fmt::format("layers/{}/{} head {}", layer, enum_name(what), head));
}

Tensor<float> MemoryTrace::read_side(SideTensor what, Index layer, Index head,
                                     TokenRange range) const {
  require_side(*this, what, layer, head);
  const bool is_k = what == SideTensor::k_pre_rope;
  const bool by_token = is_k || what == SideTensor::index_k;
  const TensorView<const float> all = layer_at(layer).of(what).view();
  const Index held = by_token ? info_.n_tokens : info_.rows.size();
  const std::string name = fmt::format("layers/{}/{} head {}", layer, enum_name(what), head);
  return read_rows(all.sub(is_k ? info_.kv_slot(layer, head) : head).range(0, 0, held), range,
                   by_token ? 0 : info_.rows.begin, name);
}

Tensor<std::int32_t> MemoryTrace::read_selected(Index layer, Index list, TokenRange range) const {
  require_selected(*this, layer, list);
  if (range.begin < info_.rows.begin || range.end > info_.rows.end || range.end < range.begin) {
    throw ConfigError("layers/{}/index_selected: positions [{}, {}) were not recorded", layer,
                      range.begin, range.end);
  }
  const Index n = info_.index.n_selected;
  Tensor<std::int32_t> out(Shape{range.size(), n});
  const auto rows = layer_at(layer).selected.view().sub(list);
  std::copy_n(rows.data() + (range.begin - info_.rows.begin) * n, range.size() * n, out.data());
  return out;
}

TraceInfo make_trace_info(Index n_layers, Index n_q, Index n_kv, Index d_head, Index n_tokens,
                          Index chunk) {
  if (chunk < 1) throw ConfigError("chunk: expected at least 1 token, found {}", chunk);
  TraceInfo info;
  info.model_name = "synthetic";
  info.model_family = "synthetic";
  info.n_layers = n_layers;
  info.n_q = n_q;
  info.n_kv = n_kv;
  info.d_head = d_head;
  info.d_model = n_q * d_head;
  info.score_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d_head)));
  info.window.resize(static_cast<std::size_t>(n_layers));
  info.layers = all_in(0, n_layers);
  info.q_heads = all_in(0, n_q);
  info.kv_heads = all_in(0, n_kv);
  info.rows = {0, n_tokens};
  info.n_tokens = n_tokens;
  info.n_prompt = n_tokens;
  info.chunk = chunk;
  for (Index begin = 0; begin < n_tokens; begin += chunk) {
    info.calls.push_back({{begin, std::min(begin + chunk, n_tokens)}, /*is_decode=*/false});
  }
  info.status = TraceStatus::complete;
  return info;
}

}  // namespace kvscope
