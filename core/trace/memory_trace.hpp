// A trace held in memory: for tests and for analyses that never need a file.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/trace/source.hpp"

namespace kvscope {

/// Holds q, k, v, lse and side tensors in f32; other captures are ignored.
class MemoryTrace final : public TraceSource {
 public:
  MemoryTrace() = default;
  /// Sizes everything (zeros): fill through q(), k(), v(), lse(), side(), selected().
  explicit MemoryTrace(const TraceInfo& info);

  const TraceInfo& info() const override { return info_; }
  std::string where() const override { return "trace in memory"; }
  std::span<const TokenId> tokens() const override { return tokens_; }
  std::vector<std::string> token_bytes() const override { return bytes_; }
  Tensor<float> read(TraceTensor what, Index layer, Index head, TokenRange range) const override;
  Tensor<float> read_side(SideTensor what, Index layer, Index head,
                          TokenRange range) const override;
  Tensor<std::int32_t> read_selected(Index layer, Index list, TokenRange range) const override;

  // direct access, by slot order of info().layers and heads
  TensorView<float> q(Index layer) { return at(layer).q.view(); }  // [q_heads, rows, d_head]
  TensorView<float> k(Index layer) { return at(layer).k.view(); }  // [kv_heads, n_tokens, d_head]
  TensorView<float> v(Index layer) { return at(layer).v.view(); }  // [kv_heads, n_tokens, d_head]
  TensorView<float> lse(Index layer) { return at(layer).lse.view(); }  // [q_heads, rows]
  /// As SideTensor says; empty if the recording has none.
  TensorView<float> side(SideTensor what, Index layer) { return at(layer).of(what).view(); }
  /// [n_lists, rows, n_selected]
  TensorView<std::int32_t> selected(Index layer) { return at(layer).selected.view(); }
  void set_tokens(std::vector<TokenId> tokens, std::vector<std::string> bytes = {}) {
    tokens_ = std::move(tokens);
    bytes_ = std::move(bytes);
  }

 private:
  struct Layer {
    Tensor<float> q, k, v, lse;
    std::array<Tensor<float>, EnumNames<SideTensor>::value.size()> side;
    Tensor<std::int32_t> selected;
    const Tensor<float>& of(SideTensor what) const { return side[static_cast<std::size_t>(what)]; }
    Tensor<float>& of(SideTensor what) { return side[static_cast<std::size_t>(what)]; }
  };
  const Layer& layer_at(Index layer) const;
  Layer& at(Index layer) { return layers_[static_cast<std::size_t>(info_.layer_slot(layer))]; }

  TraceInfo info_;
  std::vector<Layer> layers_;
  std::vector<TokenId> tokens_;
  std::vector<std::string> bytes_;
};

/// A TraceInfo for a synthetic model: all layers and heads, f32, one prefill of n_tokens in chunks.
TraceInfo make_trace_info(Index n_layers, Index n_q, Index n_kv, Index d_head, Index n_tokens,
                          Index chunk);

}  // namespace kvscope
