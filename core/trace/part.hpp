// A trace of which only some layers and heads are seen.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/trace/source.hpp"

namespace kvscope {

/// Reads go to the whole trace, which must outlive this one. What an analysis writes about the part
/// equals what it writes about these layers and heads of the whole.
class TracePart : public TraceSource {
 public:
  /// part: the whole's info with fewer layers or heads (with_layers, selected_part).
  TracePart(const TraceSource& whole, TraceInfo part) : whole_(whole), info_(std::move(part)) {}

  const TraceInfo& info() const override { return info_; }
  std::string where() const override { return whole_.where(); }
  std::span<const TokenId> tokens() const override { return whole_.tokens(); }
  std::vector<std::string> token_bytes() const override { return whole_.token_bytes(); }
  Tensor<float> read(TraceTensor what, Index layer, Index head, TokenRange range) const override {
    return whole_.read(what, layer, head, range);
  }
  Tensor<float> read_side(SideTensor what, Index layer, Index head,
                          TokenRange range) const override {
    return whole_.read_side(what, layer, head, range);
  }
  Tensor<std::int32_t> read_selected(Index layer, Index list, TokenRange range) const override {
    return whole_.read_selected(layer, list, range);
  }

 private:
  const TraceSource& whole_;
  TraceInfo info_;
};

/// The layers of the trace that are shaped as this one.
inline TracePart layers_like(const TraceSource& whole, Index layer) {
  std::vector<Index> like;
  for (const Index other : whole.info().layers) {
    if (whole.info().shape(other).is_like(whole.info().shape(layer))) like.push_back(other);
  }
  return {whole, with_layers(whole.info(), std::move(like))};
}

}  // namespace kvscope
