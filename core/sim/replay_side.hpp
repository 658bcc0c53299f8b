// Side tensors of a recording as a replayed call sees them, for methods that choose by a model's
// own indexer.
#pragma once

#include <map>

#include "core/selectors/selector.hpp"
#include "core/trace/source.hpp"

namespace kvscope {

/// Reads index keys of a layer once and index queries call by call.
class ReplaySide {
 public:
  /// What a call of the tokens in `call` sees in a layer, good until the next question. Empty
  /// tensors for a layer without an indexer; null for a recording without any.
  const SideView* of(const TraceSource& trace, Index layer, TokenRange call);

 private:
  std::map<Index, Tensor<float>> index_k_;  // by layer: [n_key_heads, n_tokens, width]
  Tensor<float> index_q_;                   // [n_heads, call.size(), width]
  Tensor<float> index_w_;                   // [n_heads, call.size()]
  SideView view_;
};

}  // namespace kvscope
