// The keys and values of all tokens so far, wherever a backend keeps them.
#pragma once

#include "core/tensor/dtype.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

struct ModelConfig;

/// What a chunk or a decode step attends to, with room for capacity() tokens. Made by the backend
/// that fills it, in the format and memory of its choice; others see it through the host rows.
class KvStore {
 public:
  virtual ~KvStore() = default;

  Index capacity() const { return capacity_; }
  Index n_tokens() const { return n_tokens_; }
  Index n_layers() const { return n_layers_; }
  /// How keys and values are stored; host rows are floats in any case.
  DType dtype() const { return dtype_; }

  /// Counts `n` more tokens as stored (the transformer calls it after the last layer).
  virtual void advance(Index n) { n_tokens_ += n; }
  /// Forgets all tokens from position n_tokens on. Throws ConfigError for more than there are.
  virtual void truncate(Index n_tokens);

  /// Takes over all tokens of another store of the same model, in place of its own. Throws
  /// ConfigError if there is no room.
  virtual void copy_from(const KvStore& other) = 0;

  /// Keys and values of positions [begin, end) as they enter the dot product. [n_kv, end - begin,
  /// d_head], each row contiguous; valid until the layer is written to or asked for other rows.
  /// For one thread at a time: a store of another dtype widens rows when they are first asked for,
  /// and keeps them.
  virtual TensorView<const float> host_k(Index layer, Index begin, Index end) const = 0;
  virtual TensorView<const float> host_v(Index layer, Index begin, Index end) const = 0;

 protected:
  KvStore(Index n_layers, Index capacity, DType dtype, Index n_tokens = 0)
      : n_layers_(n_layers), capacity_(capacity), dtype_(dtype), n_tokens_(n_tokens) {}
  /// Throws ConfigError if capacity exceeds the model's max_positions.
  KvStore(const ModelConfig& config, Index capacity, DType dtype);

  Index n_layers_, capacity_;
  DType dtype_;
  Index n_tokens_ = 0;
};

}  // namespace kvscope
