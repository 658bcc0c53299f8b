// Side tensors of a recording: what a model's indexer sees and chooses beside queries, keys and
// values (DeepSeek-V3.2's DSA, MiniMax-M3, Qwen4), and keys before their rotation.
//
// An indexer has index query heads and index key heads (DSA: 64 and 1), which share them as query
// heads share KV heads: head h reads index key head h / (n_heads / n_key_heads).
#pragma once

#include <string_view>
#include <vector>

#include "core/base/fields.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

enum class SideTensor {
  index_q,     // [n_heads, n_rows, width] as they enter the dot product
  index_k,     // [n_key_heads, n_tokens, width]; of models that index blocks a token has the index
               // key of its block as far as known with it: the block's own at its last token
  index_w,     // [n_heads, n_rows] gates of the heads
  k_pre_rope,  // [kv_heads, n_tokens, d_head] keys before rotation, after QK-norm
};

/// The indexers of a recording: all of one shape. Default: there are none.
struct IndexShape {
  std::vector<Index> layers;  // recorded layers that have one, ascending; empty = none
  Index n_heads = 0;
  Index n_key_heads = 0;
  Index width = 0;         // channels of index vectors
  bool has_gates = false;  // index_w is there
  /// index_selected [n_lists, n_rows, n_selected]: the blocks that each row chose, ascending, -1
  /// behind the last; 0 = not recorded. One list for all heads, or one per index head.
  Index n_lists = 0;
  Index n_selected = 0;
  Index block = 1;  // tokens that one chosen number stands for
  bool operator==(const IndexShape&) const = default;

  bool empty() const { return layers.empty(); }
  bool has_layer(Index layer) const;
};

/// Throws ConfigError naming the first number that is out of range or contradicts another one.
/// recorded: the recording's layers, ascending.
void check_index_shape(const IndexShape& index, const std::vector<Index>& recorded);

}  // namespace kvscope
