// Index vectors of a sequence: what an indexer scores instead of queries and keys. Those of tokens
// grow with the cache; those of queries are of one call.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/attention/rounded_scores.hpp"
#include "core/selectors/key_pools.hpp"
#include "core/selectors/learned_index.hpp"
#include "core/selectors/selector.hpp"

namespace kvscope {

/// How index vectors are held: as they are, or rounded. fp8 is e4m3 with one power of two per
/// vector.
enum class IndexType { exact, bf16, fp8 };

/// What stands for a block of tokens: nothing (every token has its own index key), the mean of
/// their index keys, or the index key of its last token.
enum class BlockIndexKey { none, mean, last };

/// Bytes of one vector of `width` channels: 2 per channel; fp8 1, and 4 for the vector's scale.
double index_vector_bytes(Index width, IndexType type);

/// The index vectors of the tokens of one layer, for one index key head.
class IndexKeys {
 public:
  /// block: tokens that block_key stands for.
  IndexKeys(Index width, Index block, BlockIndexKey block_key, IndexType type);

  /// Appends those of positions up to n_keys: write(pos, vector [width]).
  using Write = std::function<void(Index pos, std::span<double> vector)>;
  void append_up_to(Index n_keys, const Write& write);
  /// Forgets positions >= n_keys.
  void truncate(Index n_keys);

  /// [n_keys, width], or one per whole block [n_keys / block, width].
  TensorView<const float> rows() const;

 private:
  Index width_;
  IndexType type_;
  BlockIndexKey block_key_;
  Index block_;
  Index n_keys_ = 0;
  std::vector<float> rows_;
  KeyPools means_;
};

/// The index vectors of one call: of its queries, and of the whole context.
struct IndexCall {
  Tensor<double> q;                           // [n_heads, n_tok, width], scaled
  std::vector<TensorView<const float>> keys;  // [n_key_heads] each [n tokens or blocks, width]
  TensorView<const float> gates;              // [n_heads, n_tok], or empty: 1
  bool keys_are_blocks = false;
  bool heads_are_query_heads = false;

  Index n_heads() const { return q.dim(0); }
  Index width() const { return q.dim(2); }
  Index key_head_of(Index head) const { return head * static_cast<Index>(keys.size()) / n_heads(); }
};

/// Makes them call by call; those of the tokens are kept by the call's engine, under the address of
/// this object.
class IndexVectors {
 public:
  /// block > 1: index keys of whole blocks of that many tokens.
  IndexVectors(Index block, IndexType type) : block_(block), type_(type) {}

  /// By learned maps of the call's layer (all KV heads), the first `width` channels of them;
  /// products are scaled as scores are. Those of several heads' keys add up where they are shared.
  /// Throws what LearnedHeads::of_channels throws.
  IndexCall learned(const SelectCall& call, const LearnedIndex& index, Index width) const;
  /// As recorded (SelectCall::side, which must hold them); products times 1 / sqrt(width). Throws
  /// ShapeError if they are not of this call.
  IndexCall recorded(const SelectCall& call) const;

 private:
  /// The index keys [n_key_heads] up to the call's end; write(head) makes those of a head's tokens.
  std::vector<TensorView<const float>> keys_of(
      const SelectCall& call, Index n_key_heads, Index width, BlockIndexKey block_key,
      const std::function<IndexKeys::Write(Index head)>& write) const;

  Index block_;
  IndexType type_;
};

}  // namespace kvscope
