#include "core/trace/memory_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.hpp"

namespace kvscope {

namespace {

Index count_of(const std::vector<Index>& list) {
  return static_cast<Index>(list.size());
}

void expect_shape(const TensorView<const float>& view, Shape expected, Index layer,
                  std::string_view what) {
  if (view.shape() != expected) {
    throw ShapeError("layers/{}/{}: expected shape {}, found {}", layer, what, to_string(expected),
                     to_string(view.shape()));
  }
}

/// Copies [heads, n, d] into positions [first, first + n) of [heads, T, d].
void copy_rows(TensorView<const float> src, TensorView<float> dst, Index first) {
  for (Index head = 0; head < src.dim(0); ++head) {
    for (Index i = 0; i < src.dim(1); ++i) {
      const auto row = src.sub(head).row(i);
      std::copy(row.begin(), row.end(), dst.sub(head).row(first + i).begin());
    }
  }
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

void MemoryTrace::begin(const TraceInfo& info) {
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
  info_ = info;
  layers_.clear();
  tokens_.clear();
  bytes_.clear();
  call_ = 0;
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

void MemoryTrace::write_layer(const LayerRows& rows) {
  if (call_ >= info_.calls.size())
    throw ConfigError("trace in memory: all {} calls are written", call_);
  const TokenRange tokens = info_.calls[call_].tokens;
  const TokenRange kept{std::max(tokens.begin, info_.rows.begin),
                        std::min(tokens.end, info_.rows.end)};
  const Index n_rows = std::max<Index>(kept.size(), 0);
  const Index n_q = count_of(info_.q_heads);
  const Index n_kv = count_of(info_.kv_heads_of(rows.layer));
  const Index d_head = info_.shape(rows.layer).d_head;
  Layer& layer = layers_[static_cast<std::size_t>(info_.layer_slot(rows.layer))];
  if (info_.capture.qkv) {
    Tensor<float> widened;
    const auto k = rows.k.floats(widened);
    expect_shape(k, {n_kv, tokens.size(), d_head}, rows.layer, "k");
    copy_rows(k, layer.k.view(), tokens.begin);
    const auto v = rows.v.floats(widened);
    expect_shape(v, {n_kv, tokens.size(), d_head}, rows.layer, "v");
    copy_rows(v, layer.v.view(), tokens.begin);
    if (n_rows > 0) {
      const auto q = rows.q.floats(widened);
      expect_shape(q, {n_q, n_rows, d_head}, rows.layer, "q");
      copy_rows(q, layer.q.view(), kept.begin - info_.rows.begin);
    }
  }
  if (info_.capture.lse && n_rows > 0) {
    expect_shape(rows.lse, {n_q, n_rows}, rows.layer, "lse");
    for (Index head = 0; head < n_q; ++head) {
      const auto row = rows.lse.row(head);
      std::copy(row.begin(), row.end(),
                layer.lse.view().row(head).begin() + (kept.begin - info_.rows.begin));
    }
  }
}

void MemoryTrace::write_side(const SideRows& rows) {
  if (call_ >= info_.calls.size())
    throw ConfigError("trace in memory: all {} calls are written", call_);
  const TokenRange tokens = info_.calls[call_].tokens;
  const TokenRange kept{std::clamp(tokens.begin, info_.rows.begin, info_.rows.end),
                        std::clamp(tokens.end, info_.rows.begin, info_.rows.end)};
  Layer& layer = layers_[static_cast<std::size_t>(info_.layer_slot(rows.layer))];
  const auto take = [&](SideTensor what, TensorView<const float> part) {
    const TensorView<float> to = layer.of(what).view();
    const bool by_token = what == SideTensor::index_k || what == SideTensor::k_pre_rope;
    const Index first = info_.rows.begin;
    const TokenRange at = by_token ? tokens : TokenRange{kept.begin - first, kept.end - first};
    if (to.empty() || at.size() == 0) return;
    Shape expected = to.shape();
    expected.dim[1] = at.size();
    expect_shape(part, expected, rows.layer, enum_name(what));
    if (to.rank() == 3) {
      copy_rows(part, to, at.begin);
      return;
    }
    for (Index head = 0; head < to.dim(0); ++head) {
      for (Index i = 0; i < at.size(); ++i) to(head, at.begin + i) = part(head, i);
    }
  };
  take(SideTensor::index_q, rows.index_q);
  take(SideTensor::index_k, rows.index_k);
  take(SideTensor::index_w, rows.index_w);
  take(SideTensor::k_pre_rope, rows.k_pre_rope);
  if (layer.selected.count() == 0 || kept.size() == 0) return;
  const Shape expected{info_.index.n_lists, kept.size(), info_.index.n_selected};
  if (rows.index_selected.shape() != expected) {
    throw ShapeError("layers/{}/index_selected: expected shape {}, found {}", rows.layer,
                     to_string(expected), to_string(rows.index_selected.shape()));
  }
  for (Index list = 0; list < expected[0]; ++list) {
    for (Index i = 0; i < expected[1]; ++i) {
      const auto row = rows.index_selected.sub(list).row(i);
      std::copy(row.begin(), row.end(),
                layer.selected.sub(list).row(kept.begin - info_.rows.begin + i).begin());
    }
  }
}

void MemoryTrace::write_logits(TensorView<const float>) {}

void MemoryTrace::write_tokens(std::span<const TokenId> ids, std::span<const std::string> bytes) {
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

void MemoryTrace::commit_call() {
  ++call_;
}

void MemoryTrace::finish(TraceStatus status) {
  info_.status = status;
  if (call_ < info_.calls.size()) {  // interrupted: what was not committed is not part of the trace
    info_.calls.resize(call_);
    info_.n_tokens = call_ > 0 ? info_.calls.back().tokens.end : 0;
    info_.n_prompt = std::min(info_.n_prompt, info_.n_tokens);
    info_.rows.end = std::min(info_.rows.end, info_.n_tokens);
    info_.rows.begin = std::min(info_.rows.begin, info_.rows.end);
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

TensorView<float> MemoryTrace::side(SideTensor what, Index layer) {
  return layers_[static_cast<std::size_t>(info_.layer_slot(layer))].of(what).view();
}
TensorView<std::int32_t> MemoryTrace::selected(Index layer) {
  return layers_[static_cast<std::size_t>(info_.layer_slot(layer))].selected.view();
}

TensorView<float> MemoryTrace::q(Index layer) {
  return layers_[static_cast<std::size_t>(info_.layer_slot(layer))].q.view();
}
TensorView<float> MemoryTrace::k(Index layer) {
  return layers_[static_cast<std::size_t>(info_.layer_slot(layer))].k.view();
}
TensorView<float> MemoryTrace::v(Index layer) {
  return layers_[static_cast<std::size_t>(info_.layer_slot(layer))].v.view();
}
TensorView<float> MemoryTrace::lse(Index layer) {
  return layers_[static_cast<std::size_t>(info_.layer_slot(layer))].lse.view();
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
  info.layers.resize(static_cast<std::size_t>(n_layers));
  info.q_heads.resize(static_cast<std::size_t>(n_q));
  info.kv_heads.resize(static_cast<std::size_t>(n_kv));
  std::iota(info.layers.begin(), info.layers.end(), Index{0});
  std::iota(info.q_heads.begin(), info.q_heads.end(), Index{0});
  std::iota(info.kv_heads.begin(), info.kv_heads.end(), Index{0});
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
